"""Runs a package's own tests and writes what became of each, and of the products, to a file.

    python recorded_run.py OUT 0|1 PYTEST-ARGUMENTS…

1: under a trace. The products of a package that nobody rewrote are none.
"""

import json
import sys
from pathlib import Path

import pytest


class Recorder:
    """A pytest plugin: outcome of every test by its id."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            # Numbers by chance decide whether some of those that may fail do.
            may_fail = hasattr(report, "wasxfail")
            self.outcomes[report.nodeid] = "may fail" if may_fail else report.outcome


def main(out: str, traced: bool, arguments: list[str]) -> None:
    """Run pytest; OUT gets its exit code, the outcomes, the sites called and the calls traced."""
    if traced:
        from mixpert_py.runtime import context as contexts
        from mixpert_py.runtime.tracing.trace import Trace

        contexts.set_default(contexts.Context(trace=Trace()))
    recorder = Recorder()
    code = pytest.main(arguments, plugins=[recorder])
    record = {"code": int(code), "outcomes": recorder.outcomes, "passing": [], "calls": {}}
    if "mixpert_py.runtime.context" in sys.modules:
        from mixpert_py.runtime import context as contexts

        force = contexts.current()
        record["passing"] = [site for site in force.passing if site is not None]
        sites = {} if force.trace is None else force.trace.sites
        record["calls"] = {site: trace.calls for site, trace in sites.items()}
    Path(out).write_text(json.dumps(record))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "1", sys.argv[3:])
