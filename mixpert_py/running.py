"""`mixpert run`: a program rewritten in memory, run in this process, and what its products did."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from mixpert_py import config, files, launcher, tracebacks
from mixpert_py.errors import SourceError
from mixpert_py.launcher import Program
from mixpert_py.passes.pipeline import analyze
from mixpert_py.plan import Plan
from mixpert_py.runtime.in_force import InForce
from mixpert_py.runtime.trace import Trace


def run(program: Program, plan: Plan | None, scheme: str | None, trace: Trace | None) -> int:
    """Run a program and return the exit code that `python` would have given.

    Raises SourceError if it does not parse, PlanError for an unknown scheme; what the program
    itself raises is printed as `python` prints it.
    """
    config.check_scheme(scheme)
    rewritten = launcher.compiled(program)
    force = InForce(scheme=scheme, plan=plan, trace=trace, find_plan=config.find_plan)
    tracebacks.trim_in_threads()
    code = 0
    try:
        launcher.execute(program, rewritten, force)
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            code = stop.code or 0
        else:
            print(stop.code, file=sys.stderr)
            code = 1
    except BaseException as error:
        code = tracebacks.report(error)
    launcher.wait_for_threads()
    return code


def profile(program: Program, trace: Trace) -> list[dict[str, Any]]:
    """One record a call site that was called, longest first, ready for JSON."""
    known = {site.id: site for site in analyze(program.source, program.module)}
    records = []
    for site, record in sorted(trace.sites.items(), key=lambda item: -item[1].seconds):
        place = known.get(site)
        records.append(
            {
                "id": site,
                "path": program.filename,
                "line": place.line if place else None,
                "expression": place.expression if place else "(called by name)",
                "calls": record.calls,
                "seconds": record.seconds,
                "shapes": [[*shape, count] for shape, count in record.shapes.most_common()],
                "schemes": dict(record.schemes.most_common()),
                "reasons": {str(reason): n for reason, n in record.reasons.most_common()},
                "outliers": record.outliers,
            }
        )
    return records


def json_place(path: str | None) -> Path | None:
    """Where the profile goes, whatever the program does to the current folder.

    Raises SourceError, before anything is run, if it cannot be written there.
    """
    if path is None:
        return None
    place = Path(os.path.abspath(path))
    try:
        files.require_place(place)
    except OSError as error:
        raise SourceError(f"{path}: cannot write: {(error.strerror or '').lower()}") from None
    return place


def write_json(records: list[dict[str, Any]], path: Path) -> None:
    """The profile as a file. Raises SourceError if it cannot be written."""
    try:
        files.replace(path, json.dumps(records, indent=2).encode())
    except OSError as error:
        raise SourceError(f"{path}: cannot write: {(error.strerror or '').lower()}") from None


def fallback_lines(program: Program, records: list[dict[str, Any]]) -> list[str]:
    """One line for each site with calls that did not take their planned scheme."""
    lines = []
    for record in records:
        if record["reasons"]:
            why = ", ".join(
                f"{reason} ({n} call{'s' * (n != 1)})" for reason, n in record["reasons"].items()
            )
            place = f"{program.argv[0]}:{record['line']}" if record["line"] else record["id"]
            lines.append(f"{place}: {record['expression']}: ran native: {why}")
    return lines
