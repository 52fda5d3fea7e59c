"""Files planted in the caches: what another user could have written is never taken."""

import json
import subprocess
import tempfile
from pathlib import Path

from mixpert_py.errors import ProgramError
from tests.soak import fresh_home
from tests.soak.verdict import Verdict

PATIENCE = 120.0  # seconds


def gate() -> Verdict:
    """Plant files in a new home, in a process that reads its caches. Raises ProgramError."""
    with tempfile.TemporaryDirectory(prefix="mixpert-soak-") as folder:
        done = subprocess.run(
            fresh_home.command("tests.soak.planting", folder),
            env=fresh_home.environment(Path(folder)),
            cwd=fresh_home.ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    if done.returncode:
        output = done.stderr.strip().splitlines() or ["no output"]
        raise ProgramError(f"the process that reads planted files failed: {output[-1]}")
    return judged(json.loads(done.stdout))


def judged(found: dict[str, dict[str, str]]) -> Verdict:
    """found: by cache and way of planting, "taken", "ignored", "not tried", or an error.

    A file that the user has written himself is planted, too: where that is not taken, the cache was
    not read.
    """
    own = [ways.pop("by the user himself") for ways in found.values()]
    results = {f"{cache}, {way}": what for cache in found for way, what in found[cache].items()}
    tried = {name: what for name, what in results.items() if what != "not tried"}
    wrong = {name: what for name, what in tried.items() if what != "ignored"}
    left = len(results) - len(tried)
    return Verdict(
        "planted",
        f"{len(tried)} files planted in the caches of rewritten code, kernels and device models"
        + (f" ({left} more need root)" if left else ""),
        f"{len(tried) - len(wrong)} ignored, {len(wrong)} not",
        not wrong and set(own) == {"taken"},
        figures={"wrong": wrong, "own": own},
    )
