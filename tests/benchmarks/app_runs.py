"""Applications, run in this process: natively, in TF32, as the default, and under a tuned plan."""

import math
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from math import hypot, nan
from pathlib import Path
from statistics import median
from time import perf_counter
from types import ModuleType
from typing import Any, Literal

import numpy as np

from mixpert_py import sources
from mixpert_py.errors import MixPertError
from mixpert_py.execution.worker import SiteResult, site_result
from mixpert_py.passes.dataflow.graph import dependencies
from mixpert_py.passes.finder import CallSite
from mixpert_py.passes.pipeline import analyze
from mixpert_py.plan import Plan, Site
from mixpert_py.runtime.backends import emulates
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.schemes import ladder
from mixpert_py.runtime.tracing.trace import Trace
from mixpert_py.sources import in_memory
from mixpert_py.tuner.records import Ladder, Measurement, Outcome, TuningProblem
from mixpert_py.tuner.search import tune
from mixpert_py.tuner.searches import predictive
from mixpert_py.tuning.baseline import profiled_operator
from mixpert_py.tuning.clock import Clock, int8_products
from tests.benchmarks.families import Array
from tests.benchmarks.timing import error_line, summary

Size = Literal["small", "paper"]


@dataclass(frozen=True, slots=True)
class App:
    """A sample that is measured as a benchmark.

    judged: how many of the first values that its `work` returns are held against float64's. budget:
    of a program that refines its values: errors below it are alike, and a tuned plan's has to be,
    whatever budget was asked for. host: arguments with which it takes ten seconds or more on the
    processor; empty: it is not measured there.
    """

    name: str
    sample: str
    small: str
    paper: str
    judged: int = 1
    budget: float | None = None
    host: str = ""

    def arguments(self, size: Size) -> tuple[str, ...]:
        return tuple((self.small if size == "small" else self.paper).split())

    def host_arguments(self, size: Size) -> tuple[str, ...]:
        """The command line of the NumPy program, which computes in float64."""
        return tuple((f"{self.small} --dtype float64" if size == "small" else self.host).split())


APPS: Mapping[str, App] = {
    app.name: app
    for app in (
        App(
            "knn",
            "knn",
            "--dtype float32 --size 300 --asked 128 --width 64 --kinds 8",
            "--dtype float32 --size 16384 --asked 16384 --width 4096",
            host="--size 10240 --asked 10240 --width 49152 --neighbours 3",
        ),
        App(
            "kmeans",
            "kmeans",
            "--dtype float32 --size 512 --width 64 --clusters 16",
            "--dtype float32 --size 65536 --width 2048 --clusters 4096",
            judged=2,
        ),
        App(
            "mlp",
            "perceptron",
            "--size 128 --width 64 --classes 16",
            "--size 16384 --width 8192 --classes 1024",
        ),
        App(
            "cholesky",
            "cholesky",
            "--dtype float32 --size 96 --block 48 --strip 24",
            "--dtype float32 --size 40960 --block 2048 --strip 512",
            host="--size 49152 --block 4096 --strip 256",
        ),
        App(
            "hpl-ai",
            "hpl_ai",
            "--size 96 --block 32",
            "--size 32768 --block 2048",
            # What refinement is for: of the solution no less is asked than of a float64 one.
            budget=1e-12,
        ),
        App(
            "comet",
            "comet",
            "--size 64 --people 1024 --pairs 8",
            "--size 4096 --people 65536 --pairs 200",
        ),
        App(
            "bert",
            "bert",
            "--size 1 --length 8 --checked 1",
            "--size 64 --length 512",
        ),
        App(
            "qkv",
            "qkv",
            "--size 256 --tokens 32",
            "--size 8192 --tokens 4096",
            judged=2,
        ),
        App(
            "pca",
            "pca",
            "--dtype float32 --random 256 64 --components 8 --iterations 4",
            "--dtype float32 --random 262144 4096 --components 512 --iterations 4",
            host="--random 98304 8192 --components 256 --iterations 3",
        ),
        App(
            "gp",
            "gp",
            "--dtype float32 --noise 1 --size 128 --asked 64 --channels 64",
            "--dtype float32 --length 0.3 --noise 3 --size 16384 --asked 32768",
            # The mean does not show what lowered products make of the variance.
            judged=2,
            host="--length 0.3 --noise 3 --size 32768 --asked 4096",
        ),
        App(
            "circuit",
            "circuit",
            "--size 8 --fused 4 --depth 2",
            "--size 26 --fused 11",
        ),
        App("batched16", "batched16", "--size 4 --steps 6", "--size 262144"),
    )
}


FP32, TF32, FAITHFUL, TUNED = "cuBLAS FP32", "cuBLAS TF32", "faithful", "tuned"
NATIVE = Context(scheme="native")
TF32_TENSOR_OP_MATH = 3  # cublasMath_t


def under_plan(
    schemes: Mapping[str, str], backend: str | None, trace: Trace | None = None
) -> Context:
    """The context of a run in which each site has its scheme."""
    plan = Plan(site=[Site(id=site, scheme=scheme) for site, scheme in schemes.items()])
    return Context(plan=plan, backend=backend, trace=trace)


@contextmanager
def tensor_float(xp: ModuleType) -> Iterator[None]:
    """CuPy's float32 products by the vendor's TF32 inside; NumPy knows of no such thing."""
    if xp is np:
        yield
        return
    from cupy._core import _routines_linalg as routines
    from cupy_backends.cuda.libs import cublas

    handle = xp.cuda.device.get_cublas_handle()
    before = routines.get_compute_type("f"), cublas.getMathMode(handle)
    try:
        # CuPy asks the one for matrices, and cuBLAS the other for stacks of them.
        routines.set_compute_type("f", routines.COMPUTE_TYPE_TF32)
        cublas.setMathMode(handle, TF32_TENSOR_OP_MATH)
        yield
    finally:
        routines.set_compute_type("f", before[0])
        cublas.setMathMode(handle, before[1])


# A sample's own functions, of which `work` alone is timed.
PARTS = ("parsed", "problem", "work")
WIDE = {"float32": "float64", "complex64": "complex128"}


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """A sample's functions, rewritten in memory, and its call sites with the edges between them.

    parsed(arguments) → options; problem(xp, options) → inputs, a tuple; work(xp, options, *inputs)
    → values, a tuple.
    """

    name: str
    functions: Mapping[str, Any]
    sites: Mapping[str, CallSite]
    edges: frozenset[tuple[str, str]]

    @classmethod
    def load(cls, path: Path) -> "Sample":
        """Rewrite a sample. Raises SourceError if unreadable, MixPertError without a part."""
        source, module = sources.read_whole(path), path.stem
        made = in_memory.rewritten(source, module, str(path))
        if made is None:
            raise MixPertError(f"{path}: has no product")
        functions: dict[str, Any] = {"__name__": module, "__file__": str(path)}
        exec(made.code, functions)
        missing = [name for name in PARTS if name not in functions]
        if missing:
            raise MixPertError(f"{path}: has no function {missing[0]}()")
        sites = {site.id: site for site in analyze(source, module) if not site.reason}
        return cls(module, functions, sites, dependencies(source, module).edges)

    def problem(self, xp: ModuleType, arguments: Sequence[str]) -> "Problem":
        options = self.functions["parsed"](list(arguments))
        return Problem(self, xp, options, self.functions["problem"](xp, options))


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    sample: Sample
    xp: ModuleType
    options: Namespace
    inputs: tuple[Any, ...]

    def work(self) -> tuple[Any, ...]:
        found: tuple[Any, ...] = self.sample.functions["work"](self.xp, self.options, *self.inputs)
        return found

    def wide(self) -> "Problem":
        """Return the same problem in float64 or complex128, with the very same inputs."""
        options = Namespace(**vars(self.options))
        if "dtype" in options:
            options.dtype = "float64"
        return Problem(self.sample, self.xp, options, _wide(self.inputs))


def _wide(value: Any) -> Any:
    """Every float32 array among inputs in float64, every complex64 one in complex128."""
    if isinstance(value, (tuple, list)):
        return type(value)(map(_wide, value))
    if isinstance(value, dict):
        return {key: _wide(one) for key, one in value.items()}
    dtype = WIDE.get(str(getattr(value, "dtype", None)))
    return value if dtype is None else value.astype(dtype)


# Times one call in seconds, and raises what the call raises.
Timer = Callable[[Callable[[], Any]], tuple[Any, float]]


def on_device(cupy: ModuleType) -> Timer:
    """Times calls between two events of CuPy's current stream; a call may wait for the device."""

    def timed(call: Callable[[], Any]) -> tuple[Any, float]:
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        cupy.cuda.get_current_stream().synchronize()
        start.record()
        value = call()
        stop.record()
        stop.synchronize()
        return value, cupy.cuda.get_elapsed_time(start, stop) / 1e3

    return timed


def on_host(call: Callable[[], Any]) -> tuple[Any, float]:
    """Time a call on NumPy arrays, for which the host's clock is the only one."""
    begin = perf_counter()
    value = call()
    return value, perf_counter() - begin


BAND = 1 << 26  # bytes

Values = tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Runs a program and judges its values against `reference`, those of its float64 run."""

    app: App
    problem: Problem
    timer: Timer
    reference: tuple[Array, ...]

    @classmethod
    def of(cls, app: App, problem: Problem, timer: Timer) -> "Runs":
        """The runs of a program, which runs in float64 first."""
        wide = problem.wide()
        with use(NATIVE):
            values = wide.work()
        return cls(app, problem, timer, values[: app.judged])

    def once(self, context: Context) -> tuple[Values, float]:
        """One run of the work. Raises what it raises."""
        with use(context):
            return self.timer(self.problem.work)

    def traced(self, context: Context) -> tuple[Values, float, dict[str, SiteResult]]:
        """One run and the records of its products; `context` has a trace, which makes it slower."""
        values, times = self.once(context)
        assert context.trace is not None
        return values, times, {site: site_result(x) for site, x in context.trace.sites.items()}

    def error(self, values: Values) -> float:
        """The largest relative Frobenius error of the judged values; NaN is larger than any."""
        xp, errors = self.problem.xp, []
        for exact, found in zip(self.reference, values, strict=False):
            size = float(xp.linalg.norm(exact))
            errors.append(distance(xp, found, exact) / size if size else nan)
        return nan if any(error != error for error in errors) else max(errors)


def distance(xp: ModuleType, found: Array, exact: Array) -> float:
    """‖found − exact‖, computed by bands of rows, without a third array of this size."""
    if exact.nbytes <= BAND:
        return float(xp.linalg.norm(found - exact))
    rows = max(1, BAND // exact[0].nbytes)
    starts = range(0, len(exact), rows)
    return hypot(*(float(xp.linalg.norm(found[i:][:rows] - exact[i:][:rows])) for i in starts))


LADDER = "int8"
MOST_ACCURATE = "int8x10"
NATIVE_RUNS = 3
MOST_SECONDS = 45.0  # of trials, and as long as the native run again
LEVELS = tuple(name for rung in ladder(LADDER)[1:] for name in rung)  # the most accurate first
SHARE = 0.01  # of the time in products: what takes less stays native


@dataclass(slots=True, eq=False)
class PlanMeasurer:
    """Measures plans of one program. warm: the site and scheme pairs that ran before. end: of the
    time for them; a plan that comes later is not run.
    """

    runs: Runs
    backend: str | None
    warm: set[tuple[str, str]]
    end: float = math.inf

    def __call__(self, plan: Mapping[str, str], /) -> Measurement:
        """Measure one plan, after a run that loads its kernels; a failure is a measurement, too."""
        if perf_counter() > self.end:
            return Measurement(0.0, math.nan, {}, "the time for tuning was over")
        try:
            if not self.warm.issuperset(plan.items()):
                self.runs.once(under_plan(plan, self.backend))
                self.warm.update(plan.items())
            return self._measured(plan)
        except (ArithmeticError, MemoryError, MixPertError, RuntimeError, ValueError) as error:
            return Measurement(0.0, math.nan, {}, f"{type(error).__name__}: {error}")

    def _measured(self, plan: Mapping[str, str]) -> Measurement:
        values, seconds, sites = self.runs.traced(under_plan(plan, self.backend, Trace()))
        not_taken = {
            site: ", ".join(sites[site].reasons)
            for site, scheme in plan.items()
            if site in sites and scheme not in sites[site].schemes
        }
        return Measurement(
            seconds,
            self.runs.error(values),
            {site: found.seconds for site, found in sites.items()},
            not_taken=not_taken,
        )


def tuned_plan(
    runs: Runs, budget: float, backend: str | None, native: Measurement | None = None
) -> Outcome:
    """The plan within a budget.

    native: the native run of a program that is slow natively, and not run so again: its operands
    are then looked at in a run of the most accurate slices. None: native runs are made.
    """
    sample = runs.problem.sample
    unplanned = dict.fromkeys(sample.sites, "native")
    trials = PlanMeasurer(runs, backend, set(unplanned.items()))
    if native is None:
        unlowered = [trials(unplanned) for _ in range(NATIVE_RUNS)]
        found = _profile(runs, backend)
    else:
        unlowered = [native]
        found = _profile(runs, backend, MOST_ACCURATE)
    clock = Clock(unlowered, found, int8_products if emulates(backend) else None)
    # Not before: profiles are long where kernels compile.
    trials.end = perf_counter() + MOST_SECONDS + unlowered[0].seconds
    seconds = clock.native.site_seconds
    least = SHARE * sum(seconds.values())
    operators = [
        profiled_operator(
            sample.sites[site], trace, clock, LEVELS, locked=seconds.get(site, 0.0) < least
        )
        for site, trace in found.items()
        if site in sample.sites
    ]

    def measure(plan: Mapping[str, str], /) -> Measurement:
        if set(plan.values()) == {"native"}:
            return clock.native
        return clock(trials(plan), plan)

    fed = {(before, site) for site, trace in found.items() for before in trace.fed_by}
    edges = frozenset(sample.edges | fed)
    problem = TuningProblem(tuple(operators), edges, Ladder(ladder(LADDER)), budget, clock.noise)
    return tune(measure, problem, search=predictive)


def _profile(runs: Runs, backend: str | None, scheme: str = "native") -> dict[str, SiteResult]:
    """Profile every product: the error of each level on its operands."""
    return runs.traced(Context(scheme=scheme, backend=backend, trace=Trace(LEVELS)))[2]


ROUNDS = 5
HOST_ROUNDS = 3
LONG = 12.0  # seconds of rounds after which there are no more than LEAST
LEAST = 3

Record = dict[str, Any]
Around = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Platform:
    """The arrays and the clock of a measurement.

    xp: the module of the arrays. backend: None for a GPU, or "reference".
    """

    xp: ModuleType
    timer: Timer
    backend: str | None


def measure(
    app: App, arguments: tuple[str, ...], samples: Path, budget: float, platform: Platform
) -> Record:
    """The record of one application, with an entry for each mode.

    budget: of the tuned plan's error. A mode that fails says so in its own entry.
    """
    with use(NATIVE):
        problem = Sample.load(samples / f"{app.sample}.py").problem(platform.xp, arguments)
        runs = Runs.of(app, problem, platform.timer)
    record: Record = {"name": app.name, "budget": budget}
    ways: dict[str, tuple[Context, Around]] = {
        FP32: (NATIVE, nullcontext),
        TF32: (NATIVE, lambda: tensor_float(platform.xp)),
        FAITHFUL: (
            # A GPU needs no scheme for its default.
            Context("faithful" if emulates(platform.backend) else None, backend=platform.backend),
            nullcontext,
        ),
    }
    failed = None
    try:
        outcome = tuned_plan(runs, app.budget or budget, platform.backend)
        ways[TUNED] = under_plan(outcome.plan, platform.backend), nullcontext
    except Exception as error:
        failed = {"name": TUNED, **failure(error)}
    record["modes"] = _in_turn(runs, ways) + ([failed] if failed else [])
    return record


def failure(error: BaseException) -> Record:
    """The fields of a record that describe an error: one line, and the traceback."""
    return {
        "failed": error_line(error),
        "traceback": "".join(traceback.format_exception(error)),
    }


def _in_turn(runs: Runs, ways: Mapping[str, tuple[Context, Around]]) -> list[Record]:
    """Times and error of every mode; a mode that fails leaves the others."""
    records: dict[str, Record] = {name: {"name": name} for name in ways}
    times: dict[str, list[float]] = {name: [] for name in ways}
    begin = perf_counter()
    for turn in range(1 + ROUNDS):  # the first shows the error, and is not timed
        if turn > LEAST and perf_counter() - begin > LONG:
            break
        for name, (context, around) in ways.items():
            if "failed" in records[name]:
                continue
            try:
                with around():
                    values, taken = runs.once(context)
                if turn:
                    times[name].append(taken)
                else:
                    records[name]["error"] = runs.error(values)
                del values
            except Exception as error:
                records[name] |= failure(error)
    for name, taken_times in times.items():
        if taken_times and "failed" not in records[name]:
            records[name]["device"] = summary(taken_times)
    return list(records.values())


def measure_host(
    app: App, arguments: tuple[str, ...], samples: Path, budget: float, platform: Platform
) -> Record:
    """The record of one NumPy program: seconds natively and under a plan within the budget.

    The native run, in float64, is what errors are measured against; it is long, and made once.
    """
    record: Record = {"name": app.name, "budget": budget}
    with use(NATIVE):
        problem = Sample.load(samples / f"{app.sample}.py").problem(platform.xp, arguments)
    traced = replace(NATIVE, trace=Trace())
    values, native, sites = Runs(app, problem, platform.timer, ()).traced(traced)
    runs = Runs(app, problem, platform.timer, values[: app.judged])
    record["native"] = native
    spent = {site: found.seconds for site, found in sites.items()}
    before = Measurement(native, 0.0, spent)
    outcome = tuned_plan(runs, budget, platform.backend, before)
    context = under_plan(outcome.plan, platform.backend)
    walls: list[float] = []
    while len(walls) < HOST_ROUNDS and sum(walls) < LONG:
        walls.append(runs.once(context)[1])
    values, _, sites = runs.traced(replace(context, trace=Trace()))
    record |= {"rewritten": median(walls), "error": runs.error(values), "plan": dict(outcome.plan)}
    record["speedup"] = record["native"] / record["rewritten"]
    record["products"] = sum(site.seconds for site in sites.values())
    return record
