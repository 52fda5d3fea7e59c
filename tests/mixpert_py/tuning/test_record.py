"""A plan that cannot be written to its place is found in another."""

import errno
import os
import tempfile
from pathlib import Path

import pytest

from mixpert_py import plan
from mixpert_py.errors import PlanError
from mixpert_py.plan import Plan, Site
from mixpert_py.tuning.record import save_elsewhere

FOUND = Plan(site=[Site(id="s:f/matmul~0a#0", scheme="int8x6", expression="a @ b")])
ERROR = PlanError("p.toml: cannot write the plan: No space left on device")


def test_it_is_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    said = str(save_elsewhere(FOUND, ERROR))
    (place,) = tmp_path.iterdir()
    assert said == f"{ERROR}; the plan that was found is in {place}"
    assert plan.load(place) == FOUND


@pytest.mark.parametrize("fails", ["tempfile.mkstemp", "os.fdopen"])
def test_it_is_printed_where_nothing_can_be_written(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(fails, fail)
    said = save_elsewhere(FOUND, ERROR)
    assert str(said) == f"{ERROR}; the plan that was found is printed above"
    assert plan.loads(capsys.readouterr().err) == FOUND
    assert not list(tmp_path.iterdir())
