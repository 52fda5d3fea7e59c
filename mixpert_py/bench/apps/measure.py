"""One application: its work natively, in TF32, faithful and under a tuned plan, in turn."""

import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any

from mixpert_py.bench.apps import modes, tuned
from mixpert_py.bench.apps.app import App
from mixpert_py.bench.apps.program import Sample
from mixpert_py.bench.apps.runs import Runs, Timer, Times, Values, site_records
from mixpert_py.bench.timing import summary
from mixpert_py.runtime.context import Context, emulates, use
from mixpert_py.runtime.dtypes import is_single
from mixpert_py.runtime.tracing.trace import Trace
from mixpert_py.tuner.records import Outcome

ROUNDS = 5
LONG = 12.0  # seconds of rounds after which there are no more than LEAST
LEAST = 3

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to run the program. around: a context that holds during the run, such as TF32."""

    name: str
    context: Context
    around: Callable[[], AbstractContextManager[None]] = nullcontext


@dataclass(frozen=True, slots=True)
class Platform:
    """The arrays and the clock of a measurement.

    xp: the module of the arrays. backend: None for a GPU, or "reference"."""

    xp: ModuleType
    timer: Timer
    backend: str | None


def measure(
    app: App, arguments: tuple[str, ...], samples: Path, budget: float, platform: Platform
) -> Record:
    """The record of one application: {"modes": [one a mode], "tuned": …}.

    budget: of the tuned plan's error. What fails says so in its own place: a mode, the tuner, or,
    where nothing could be measured, the whole record.
    """
    begin = perf_counter()
    record: Record = {
        "name": app.name,
        "arguments": list(arguments),
        "budget": budget,
        "alike_below": app.budget or 0.0,
        "modes": [],
    }
    try:
        with use(modes.NATIVE):
            problem = Sample.load(samples / f"{app.sample}.py").problem(platform.xp, arguments)
            record["problem_seconds"] = perf_counter() - begin
            runs = Runs.of(app, problem, platform.timer)
        ways = [
            Variant(modes.FP32, modes.NATIVE),
            Variant(modes.TF32, modes.NATIVE, lambda: modes.tensor_float(platform.xp)),
            Variant(modes.FAITHFUL, _faithful(runs, platform.backend)),
        ]
        plan = _tuned(record, runs, app.budget or budget, platform.backend)
        if plan is not None:
            ways.append(Variant(modes.TUNED, modes.under(plan, platform.backend)))
        record["modes"] = _in_turn(runs, ways)
    except Exception as error:
        record |= failure(error)
    record["seconds"] = perf_counter() - begin
    return record


def failure(error: BaseException) -> Record:
    """The fields of a record that describe an error: one line, and the traceback."""
    lines = str(error).strip().splitlines() or [""]
    return {
        "failed": f"{type(error).__name__}: {lines[0]}",
        "traceback": "".join(traceback.format_exception(error)),
    }


def _faithful(runs: Runs, backend: str | None) -> Context:
    """The context of `faithful`: a GPU runs it by default; elsewhere a plan names it."""
    if not emulates(backend):
        return Context(backend=backend)
    _, _, sites = runs.traced(replace(modes.NATIVE, trace=Trace()))
    schemes = {
        site: "faithful" if is_single(*found.dtypes) else "native" for site, found in sites.items()
    }
    return modes.under(schemes, backend)


def _tuned(
    record: Record, runs: Runs, budget: float, backend: str | None
) -> Mapping[str, str] | None:
    """The tuner's plan, or None where it failed. The course of the search goes into the record."""
    begin = perf_counter()
    try:
        outcome, trials = tuned.search(runs, budget, backend)
    except Exception as error:
        record["tuned"] = {"budget": budget, **failure(error)}
        return None
    record["tuned"] = {
        "budget": budget,
        "seconds": perf_counter() - begin,
        "trials": trials,
        "error": outcome.best.error,
        "sites": _verdicts(outcome),
    }
    return outcome.plan


def _verdicts(outcome: Outcome) -> list[Record]:
    return [
        {
            "id": verdict.operator.id,
            "expression": verdict.operator.expression,
            "scheme": verdict.after,
            "before": verdict.seconds_before,
            "after": verdict.seconds_after,
            "stopped": str(verdict.reason),
            "detail": verdict.detail,
            "local_errors": dict(verdict.operator.local_errors),
        }
        for verdict in outcome.verdicts
    ]


def _in_turn(runs: Runs, ways: list[Variant]) -> list[Record]:
    """Times, error and figure of every mode; one that fails leaves the others."""
    records: list[Record] = [{"name": mode.name} for mode in ways]
    times: list[list[Times]] = [[] for _ in ways]
    begin = perf_counter()
    for turn in range(1 + ROUNDS):  # the first shows the error, and is not timed
        if turn > LEAST and perf_counter() - begin > LONG:
            break
        for mode, record, taken in zip(ways, records, times, strict=True):
            if "failed" in record:
                continue
            try:
                with mode.around():
                    values, one = runs.once(mode.context)
                if turn:
                    taken.append(one)
                else:
                    record |= _judged(runs, mode, values)
            except Exception as error:
                record |= failure(error)
    for record, taken in zip(records, times, strict=True):
        if taken and "failed" not in record:
            record["device"] = summary([one.device for one in taken])
            record["wall"] = summary([one.wall for one in taken])
    return records


def _judged(runs: Runs, mode: Variant, values: Values) -> Record:
    """Error and figure of a mode, and what its products ran, from a traced run."""
    record = {"error": runs.error(values), "figure": runs.figure(values)}
    del values
    with mode.around():
        sites = runs.traced(replace(mode.context, trace=Trace()))[2]
    return {**record, "sites": site_records(sites)}
