"""Tunings that are interrupted or killed go on, and end as undisturbed ones do."""

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from mixpert_py import plan
from tests.mixpert_py.command import IMPORTABLE
from tests.mixpert_py.tuning.counted import MANY_RUNS, OPTIONS, runs
from tests.mixpert_py.tuning.counted import program as program


class Tuning:
    """`mixpert tune` in a process; what descends from it can be told by its environment."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.mark = f"MIXPERT_TEST={uuid.uuid4()}"
        name, _, value = self.mark.partition("=")
        (folder / "temporary").mkdir(exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": IMPORTABLE, name: value}
        environment["TMPDIR"] = str(folder / "temporary")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mixpert_py", "tune", *OPTIONS, *options, "s.py"],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ended(self) -> tuple[int, str]:
        _, err = self.process.communicate(timeout=200)
        return self.process.returncode, err

    def left(self) -> list[str]:
        """Processes of this tuning that still run."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (entry / "environ").read_bytes():
                    found.append(entry.name)
            except OSError:  # gone, or somebody else's
                continue
        return found


posix = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="sends signals")


@posix
@pytest.mark.parametrize(
    ("options", "plans", "left"),
    [(MANY_RUNS, ["s"], 0), (("--error", "1e-3"), ["s-1e-3", "s-1e-5"], 2)],
    ids=["at the end, torn", "in the second budget"],
)
def test_a_killed_tuning_goes_on_after_its_last_whole_line(
    options: tuple[str, ...], plans: list[str], left: int, program: Path
) -> None:
    paths = [program.with_name(f"{name}.mixpert.toml") for name in plans]
    store = paths[0].with_suffix(".trials.jsonl")
    code, err = Tuning(program.parent, *options).ended()
    assert code == 0, err
    undisturbed = [plan.load(path).schemes() for path in paths]
    needed = runs(program)
    for path in paths:
        path.unlink()
        path.with_suffix(".trials.jsonl").unlink()
    tuning = Tuning(program.parent, *options)
    while not store.exists() or store.read_bytes().count(b"\n") < needed - left:
        assert tuning.process.poll() is None
        time.sleep(0.01)
    tuning.process.kill()
    tuning.ended()
    while tuning.left():  # the run that was being made
        time.sleep(0.01)
    if not left:
        with store.open("ab") as file:
            file.write(b'{"type": "run", "purpose": "tri')
    kept = store.read_bytes().count(b"\n") - 1
    made = runs(program)
    code, err = Tuning(program.parent, *options, "--resume").ended()
    assert (code, err.count("\n")) == (0, 1), err
    assert f"UTC goes on; runs made: {kept}" in err
    assert [plan.load(path).schemes() for path in paths] == undisturbed
    assert runs(program) - made == needed - kept
    assert '"finished": true' in store.read_text().splitlines()[-1]
