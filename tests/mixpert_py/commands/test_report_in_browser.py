"""The page of a real tuning in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mixpert_py.launch import launcher
from mixpert_py.tuner.report.page import page
from mixpert_py.tuner.report.record import read
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from mixpert_py.tuning.record import record, reported_program
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
    found = read(record(tuned, "m.mixpert.toml"), "m")
    (folder / "index.html").write_text(page(found, reported_program(found, tuned.plan, script)))
    return folder / "index.html"


@pytest.fixture
def shown(chromium: browser.Page, path: Path) -> Iterator[browser.Page]:
    """The page, opened; it has complained of nothing when the test is over."""
    chromium.errors.clear()
    chromium.open(path)
    yield chromium
    assert chromium.errors == []


def highlighted(page: browser.Page) -> set[str]:
    """The sections in which something is highlighted."""
    return set(
        page.evaluate(
            "[...document.querySelectorAll('.chosen-op')].map(e => e.closest('section').id)"
        )
    )


EVERYWHERE = {"time", "operators", "operands", "source", "trials"}


@pytest.mark.parametrize(
    "selector",
    ["#op-1 code", "#source-1", ".mark[data-op='1']", "#time a"],
    ids=["row", "note", "mark", "bar"],
)
def test_a_click_highlights_an_operator_everywhere(shown: browser.Page, selector: str) -> None:
    assert highlighted(shown) == set()
    shown.click(selector)
    assert highlighted(shown) == EVERYWHERE
    assert shown.evaluate("document.querySelectorAll('#operators .chosen-op').length") == 1
    assert not shown.evaluate("document.getElementById('selected').hidden")
    shown.press("Escape")
    assert highlighted(shown) == set()
    assert shown.evaluate("document.getElementById('selected').hidden")


def test_columns_are_sorted_by_a_click(shown: browser.Page) -> None:
    lines = "[...document.querySelectorAll('#operators tbody tr')].map(r => +r.cells[1].innerText)"
    shown.click("#operators th:nth-child(2) button")
    up = shown.evaluate(lines)
    shown.click("#operators th:nth-child(2) button")
    assert shown.evaluate(lines) == up[::-1]
    assert up == sorted(up)
    assert len(set(up)) == 2


def test_a_point_and_its_plan_are_joined(shown: browser.Page) -> None:
    shown.click(".point[data-trial='2']")
    assert shown.evaluate("location.hash") == "#trial-2"
    # The mouse itself moves: where it rests, Chromium repeats its events after each layout.
    shown.hover(".point[data-trial='1']")
    names = "[...document.querySelectorAll('.pointed')].map(e => e.dataset.trial)"
    assert shown.evaluate(names) == ["1", "1"]


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_the_window_and_can_be_read(shown: browser.Page, width: int, scheme: str) -> None:
    shown.window(width, scheme)
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    dark = shown.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (scheme == "dark")
    assert len(shown.picture()) > 10_000
    assert shown.colliding_texts() == []
    # Nothing but the source and the graph is wider than the page, and cells name their columns.
    beyond = "one => one.scrollWidth > one.clientWidth && !one.querySelector('.listing, .graph')"
    assert shown.evaluate(f"[...document.querySelectorAll('.scroll')].filter({beyond}).length") == 0
    name = shown.evaluate("getComputedStyle(document.querySelector('td'), '::before').content")
    assert name == ('"no."' if width < 640 else "none")
    size = shown.evaluate(
        "(e => parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a)"
        "(document.querySelector('.plane text'))"
    )
    assert size >= 9.5


def test_it_prints(shown: browser.Page) -> None:
    assert shown.call("Page.printToPDF", printBackground=True)["data"]
    shown.call("Emulation.setEmulatedMedia", media="print")
    assert shown.evaluate("getComputedStyle(document.getElementById('selected')).display") == "none"
    shown.call("Emulation.setEmulatedMedia", media="")
