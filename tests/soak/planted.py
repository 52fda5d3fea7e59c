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
    """Plant each in a home of its own, in a process that looks there. Raises ProgramError."""
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
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise ProgramError(f"the process that looks for planted files failed: {said[-1]}")
    return judged(json.loads(done.stdout))


def judged(found: dict[str, dict[str, str]]) -> Verdict:
    """found: by cache and way of planting, "taken", "ignored", "not tried", or an error.

    A file that the user has written himself is planted, too: where that is not taken, nobody
    looked.
    """
    own = [ways.pop("by the user himself") for ways in found.values()]
    said = {f"{cache}, {way}": what for cache in found for way, what in found[cache].items()}
    tried = {name: what for name, what in said.items() if what != "not tried"}
    wrong = {name: what for name, what in tried.items() if what != "ignored"}
    left = len(said) - len(tried)
    return Verdict(
        "planted",
        f"{len(tried)} files planted in the caches of rewritten code, kernels and device models"
        + (f" ({left} more need root)" if left else ""),
        f"{len(tried) - len(wrong)} ignored, {len(wrong)} not",
        not wrong and set(own) == {"taken"},
        figures={"wrong": wrong, "own": own},
    )
