"""The time and the memory that rewriting whole projects takes, from the files to the new text."""

import json
import resource
import sys
from collections import Counter
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from mixpert_py.bench import machine
from mixpert_py.cli import main
from mixpert_py.sources import rewriting, source_files

MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1 << 10  # bytes in one unit of ru_maxrss


def measure(paths: Sequence[str], jobs: int) -> dict[str, Any]:
    """Rewrite every file below the paths once, and count files, products, seconds and bytes.

    peak_bytes: the memory of the largest process that shared the work, not the sum of all.
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
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "trees": {Path(path).name: _version(Path(path).name) for path in paths},
        "processes": jobs,
        "files": len(files),
        **count,
        "problems": problems,
        "seconds": seconds,
        "processor_seconds": sum(usage.ru_utime + usage.ru_stime for usage in usages),
        "peak_bytes": max(usage.ru_maxrss for usage in usages) * MAXRSS_UNIT,
    }


def _version(tree: str) -> str | None:
    """The version of the installed distribution that a folder belongs to, if there is one."""
    distributions = metadata.packages_distributions().get(tree, [])
    return metadata.version(distributions[0]) if distributions else None


@click.command()
@click.option("-j", "jobs", default=2, show_default=True, type=click.IntRange(1), metavar="N")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
def command(jobs: int, paths: tuple[str, ...]) -> None:
    """Whole projects rewritten in memory: time and peak memory."""
    found = {"machine": machine.machine(), **measure(paths, jobs)}
    click.echo(json.dumps(found, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main(command, "python -m tests.measure.rewriting")
