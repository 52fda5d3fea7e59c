"""Shows that the tests find mistakes: each mutant is put into a copy of the repository and tested.

`python -m tests.mutants` makes all of them, `python -m tests.mutants scale tiny` those with one of
these words in their names. Each line of output says whether a mutant was caught, and by which
test. The exit status is 1 if one was missed or could not be made.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants import other, runtime
from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parent.parent.parent
MUTANTS: tuple[Mutant, ...] = (*runtime.MUTANTS, *other.MUTANTS)
IGNORED = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache", "*.egg-info")
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
SECONDS = 900  # a mutant whose tests run on for ever counts as caught


def main(words: Sequence[str]) -> int:
    chosen = [one for one in MUTANTS if not words or any(word in one.name for word in words)]
    missed = 0
    for mutant in chosen:
        started = time.perf_counter()
        outcome = examine(mutant)
        missed += not outcome.startswith("caught")
        print(f"{mutant.name}: {outcome} ({time.perf_counter() - started:.0f} s)", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} mutants caught")
    return 1 if missed or not chosen else 0


def examine(mutant: Mutant) -> str:
    """Whether the mutant's tests fail in a copy of the repository that has the mistake."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder) / "repository"
        shutil.copytree(ROOT, copy, symlinks=True, ignore=IGNORED)
        source = copy / mutant.path
        text = source.read_text() if source.exists() else ""
        if (count := text.count(mutant.old)) != 1:
            return f"not made: {mutant.path} has the old text {count} times"
        source.write_text(text.replace(mutant.old, mutant.new))
        return _tested(copy, mutant.tests)


def _tested(copy: Path, tests: Sequence[str]) -> str:
    # The copy is imported, not the repository that is installed in editable mode.
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, *tests],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"caught: its tests ran for more than {SECONDS} s"
    if done.returncode == 0:
        return "MISSED"
    # pytest-xdist ends with 2, interrupted, where the first failure ends the run.
    if done.returncode in (1, 2) and (failed := FAILED.search(done.stdout)):
        return f"caught by {failed[1]}"
    return f"not tested: pytest ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
