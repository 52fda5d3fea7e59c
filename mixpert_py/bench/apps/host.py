"""A NumPy program on the processor against the same, rewritten: arrays move to the GPU and back."""

from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

from mixpert_py.bench.apps import modes, tuned
from mixpert_py.bench.apps.app import App
from mixpert_py.bench.apps.measure import Platform, Record, failure
from mixpert_py.bench.apps.program import Sample
from mixpert_py.bench.apps.runs import Runs, site_records
from mixpert_py.runtime.context import use
from mixpert_py.runtime.tracing.trace import Trace
from mixpert_py.tuner.records import Measurement

ROUNDS = 3
LONG = 12.0  # seconds of rounds after which there are no more


def measure(
    app: App, arguments: tuple[str, ...], samples: Path, budget: float, platform: Platform
) -> Record:
    """The record of one program: seconds natively and under a plan within the budget, its error.

    The native run, in float64, is what errors are measured against; it is long, and made once.
    """
    begin = perf_counter()
    record: Record = {"name": app.name, "arguments": list(arguments), "budget": budget}
    try:
        with use(modes.NATIVE):
            problem = Sample.load(samples / f"{app.sample}.py").problem(platform.xp, arguments)
        record["problem_seconds"] = perf_counter() - begin
        traced = replace(modes.NATIVE, trace=Trace())
        values, native, sites = Runs(app, problem, platform.timer, ()).traced(traced)
        runs = Runs(app, problem, platform.timer, values[: app.judged])
        record["native"], record["native_figure"] = native.wall, runs.figure(values)
        spent = {site: found.seconds for site, found in sites.items()}
        outcome, trials = tuned.search(
            runs, budget, platform.backend, Measurement(native.wall, 0.0, spent)
        )
        context = modes.under(outcome.plan, platform.backend)
        walls: list[float] = []
        while len(walls) < ROUNDS and sum(walls) < LONG:
            walls.append(runs.once(context)[1].wall)
        values, _, sites = runs.traced(replace(context, trace=Trace()))
        record |= {
            "rewritten": median(walls),
            "error": runs.error(values),
            "figure": runs.figure(values),
            "trials": trials,
            "plan": dict(outcome.plan),
        }
        record["speedup"] = record["native"] / record["rewritten"]
        record["sites"] = site_records(sites)
    except Exception as error:
        record |= failure(error)
    record["seconds"] = perf_counter() - begin
    return record
