"""The profile of a tuning: what it says of operands, and which edges it saw."""

import json
from pathlib import Path

import pytest

from tests.mixpert_py.command import Mixpert

# The second product reads the first one's result where nobody can know it from the source; the
# third reads a copy of it; its calls are many.
PROGRAM = """\
import numpy as np
rng = np.random.default_rng(0)
a = rng.standard_normal((40, 60))
wide = np.exp2(np.arange(60))
c = (a * wide) @ a.T
vars()["hidden"] = c
d = hidden.T[1:] @ a
e = c.copy()
for _ in range(50):
    e = np.dot(e, a @ a.T) / 1000
flat = np.abs(a) @ np.abs(a.T)
mixed = a * wide
apart = mixed @ (a / wide).T
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # a tuning's first run copies the folder that it works in
    path = tmp_path / "m.py"
    path.write_text(PROGRAM)
    return path


def test_the_record_and_the_report_say_it(script: Path, tmp_path: Path, mixpert: Mixpert) -> None:
    done = mixpert("tune", "m.py", "--error", "1e-3", "--backend", "reference")
    assert done.code == 0, done.err
    record = json.loads(mixpert("report", "m.mixpert.toml", "--json").out)
    entries = {entry["expression"]: entry for entry in record["operators"]}
    assert entries["a @ a.T"]["sampled"] == 8
    assert 2 < entries["a @ a.T"]["spread"] < 5
    assert entries["a @ a.T"]["int8_loss"] < 1
    assert entries["mixed @ (a / wide).T"]["int8_loss"] > 10
    assert entries["a @ a.T"]["cancellation"] > 1
    (fed,) = entries["hidden.T[1:] @ a"]["fed_by"]
    assert fed == entries["(a * wide) @ a.T"]["id"]


def test_a_profile_of_a_run(script: Path, tmp_path: Path, mixpert: Mixpert) -> None:
    emulated = ("--backend", "reference", "--scheme", "int8x6")
    done = mixpert("run", "--profile", "--json", "run.json", *emulated, "m.py")
    assert done.code == 0
    assert "cancels" in done.err
    assert done.err.count("small entries along K") == 1
    assert "line 13: int8x6 loses about " in done.err
    entries = {
        entry["expression"]: entry for entry in json.loads((tmp_path / "run.json").read_text())
    }
    loop = entries["np.dot(e, a @ a.T)"]
    assert (loop["calls"], loop["sampled"], loop["transfer_seconds"]) == (50, 8, 0)
    assert loop["fed_by"] == {entries["a @ a.T"]["id"]: 50}
    assert loop["cancellation"] > 1
    assert 2 < loop["spread"] < 6
    assert loop["int8_loss"] < 1
    again = mixpert("run", "--json", "again.json", *emulated, "m.py")
    assert again.code == 0
    same = ("id", "calls", "sampled", "spread", "int8_loss", "cancellation", "fed_by")
    others = {entry["id"]: entry for entry in json.loads((tmp_path / "again.json").read_text())}
    for entry in entries.values():
        assert {key: entry[key] for key in same} == {key: others[entry["id"]][key] for key in same}
