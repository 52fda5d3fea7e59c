"""The page of a real tuning in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mixpert_py.launch import launcher
from mixpert_py.tuner.report.page import page
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from mixpert_py.tuning.record import record
from tests import browser
from tests.mixpert_py.tuning.tuned_program import tuned_program

PROGRAM = """\
import numpy as np

rng = np.random.default_rng(0)


def network(x, weights):
    '''Not </script> the end.'''
    for w in weights:
        x = np.tanh(x @ w)
    return np.dot(x, weights[0])


result = network(rng.standard_normal((30, 30)), rng.standard_normal((2, 30, 30)))
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a tuning."""
    folder = tmp_path_factory.mktemp("page")
    script = folder / "m.py"
    script.write_text(PROGRAM)
    tuned = tuned_program(
        launcher.script(str(script)), TuningOptions(Limits(Limit(1e-3)), backend="reference")
    )
    (folder / "index.html").write_text(page(record(tuned, "m.mixpert.toml")))
    return folder / "index.html"


@pytest.fixture
def shown(chromium: browser.Page, path: Path) -> Iterator[browser.Page]:
    """The page, opened; it has complained of nothing when the test is over."""
    chromium.errors.clear()
    chromium.open(path)
    yield chromium
    assert chromium.errors == []


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_the_window_and_can_be_read(shown: browser.Page, width: int, scheme: str) -> None:
    shown.window(width, scheme)
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    dark = shown.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (scheme == "dark")
    assert len(shown.picture()) > 10_000
    assert shown.colliding_texts() == []


def test_it_prints(shown: browser.Page) -> None:
    assert shown.call("Page.printToPDF", printBackground=True)["data"]
