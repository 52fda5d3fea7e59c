"""Runs of one problem: their times and values, how far off they are, what their products did."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import hypot, nan
from time import perf_counter
from types import ModuleType
from typing import Any, Protocol

from mixpert_py.bench.apps.app import App
from mixpert_py.bench.apps.modes import NATIVE
from mixpert_py.bench.apps.program import Problem
from mixpert_py.bench.arrays import Array
from mixpert_py.execution.worker import SiteResult, site_result
from mixpert_py.runtime.context import Context, use


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds between two events on the device, and on the host until it saw the second event."""

    device: float
    wall: float


class Timer(Protocol):
    """A function that times one call and raises what the call raises."""

    def __call__(self, call: Callable[[], Any], /) -> tuple[Any, Times]: ...


class DeviceTimer:
    """Times calls on CuPy's current device and stream; a call may wait for the device."""

    def __init__(self, cupy: ModuleType) -> None:
        self._event = cupy.cuda.Event
        self._elapsed = cupy.cuda.get_elapsed_time
        self._stream = cupy.cuda.get_current_stream()

    def __call__(self, call: Callable[[], Any], /) -> tuple[Any, Times]:
        start, stop = self._event(), self._event()
        self._stream.synchronize()
        begin = perf_counter()
        start.record()
        value = call()
        stop.record()
        self._stream.synchronize()
        wall = perf_counter() - begin
        return value, Times(self._elapsed(start, stop) / 1e3, wall)


def on_host(call: Callable[[], Any], /) -> tuple[Any, Times]:
    """Time a call on NumPy arrays, for which the host's clock is the only one."""
    begin = perf_counter()
    value = call()
    wall = perf_counter() - begin
    return value, Times(wall, wall)


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

    def once(self, context: Context) -> tuple[Values, Times]:
        """One run of the work. Raises what it raises."""
        with use(context):
            return self.timer(self.problem.work)

    def traced(self, context: Context) -> tuple[Values, Times, dict[str, SiteResult]]:
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

    def figure(self, values: Values) -> float:
        """The program's own figure of merit."""
        with use(NATIVE):
            return self.problem.figure(self.app.figure, values)


def distance(xp: ModuleType, found: Array, exact: Array) -> float:
    """‖found − exact‖, computed by bands of rows, without a third array of this size."""
    if exact.nbytes <= BAND:
        return float(xp.linalg.norm(found - exact))
    rows = max(1, BAND // exact[0].nbytes)
    starts = range(0, len(exact), rows)
    return hypot(*(float(xp.linalg.norm(found[i:][:rows] - exact[i:][:rows])) for i in starts))


def site_records(sites: Mapping[str, SiteResult]) -> list[dict[str, Any]]:
    """The records of products as plain data for the results."""
    return [
        {
            "id": site,
            "calls": found.calls,
            "shapes": [list(shape) for shape in found.shapes[:8]],
            "dtypes": found.dtypes,
            "seconds": found.seconds,
            "transfer": found.transfer,
            "schemes": found.schemes,
            "reasons": found.reasons,
        }
        for site, found in sites.items()
    ]
