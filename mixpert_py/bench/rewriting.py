"""What it takes to rewrite whole projects, from reading the files to the new text in memory."""

import resource
import sys
from collections import Counter
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any

from mixpert_py.sources import rewriting, source_files

UNIT = 1 if sys.platform == "darwin" else 1 << 10  # of ru_maxrss, in bytes


def measure(paths: Sequence[str], jobs: int) -> dict[str, Any]:
    """Every file below the paths once: what was found, in how many seconds and bytes.

    peak_bytes: of the largest of the processes that share the work, not their sum.
    """
    start = perf_counter()
    files = list(source_files.source_files(paths, ()))
    count: Counter[str] = Counter()
    problems = []
    for result in rewriting.rewrite_files(files, jobs=jobs):
        count["lines"] += result.before.count(b"\n")
        count["bytes"] += len(result.before)
        count["changed"] += result.changed
        count["products"] += len(result.sites) - len(result.left)
        count["left"] += len(result.left)
        if result.problem:
            problems.append(result.problem)
    seconds = perf_counter() - start
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "trees": {Path(path).name: _version(Path(path).name) for path in paths},
        "processes": jobs,
        "files": len(files),
        **count,
        "problems": problems,
        "seconds": seconds,
        "processor_seconds": sum(usage.ru_utime + usage.ru_stime for usage in used),
        "peak_bytes": max(usage.ru_maxrss for usage in used) * UNIT,
    }


def _version(tree: str) -> str | None:
    """The version of the installed distribution that a folder belongs to, if there is one."""
    distributions = metadata.packages_distributions().get(tree, [])
    return metadata.version(distributions[0]) if distributions else None
