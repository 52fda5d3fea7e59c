"""The profile of a tuning: what it says of operands, and which edges it saw."""

import json

import pytest

from tests.mixpert_py.command import Shell

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


@pytest.fixture(autouse=True)
def _script(sh: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(sh.folder)  # a tuning's first run copies the folder that it works in
    sh.write({"m.py": PROGRAM})


def test_the_record_and_the_report_say_it(sh: Shell) -> None:
    sh("tune m.py --error 1e-3 --backend reference")
    record = sh.json("report m.mixpert.toml --json")
    entries = {entry["expression"]: entry for entry in record["operators"]}
    loop = entries["a @ a.T"]
    assert loop["sampled"] == 8
    assert 2 < loop["spread"] < 5
    (fed,) = entries["hidden.T[1:] @ a"]["fed_by"]
    assert fed == entries["(a * wide) @ a.T"]["id"]


def test_a_profile_of_a_run(sh: Shell) -> None:
    emulated = "run --backend reference --scheme int8x6"
    sh(f"{emulated} --profile --json run.json m.py", err="spread")
    entries = {entry["expression"]: entry for entry in json.loads(sh.read("run.json"))}
    loop = entries["np.dot(e, a @ a.T)"]
    assert (loop["calls"], loop["sampled"], loop["transfer_seconds"]) == (50, 8, 0)
    assert loop["fed_by"] == {entries["a @ a.T"]["id"]: 50}
    assert 2 < loop["spread"] < 6
    sh(f"{emulated} --json again.json m.py")
    same = ("id", "calls", "sampled", "spread", "fed_by")
    others = {entry["id"]: entry for entry in json.loads(sh.read("again.json"))}
    for entry in entries.values():
        assert {key: entry[key] for key in same} == {key: others[entry["id"]][key] for key in same}
