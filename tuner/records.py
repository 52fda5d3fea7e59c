"""The records that a search takes (operators, ladder) and returns (trials, outcome).

Also the statistics of repeated runs of one plan: their median and their spread.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf, isnan
from statistics import median

import msgspec

from mixpert_py.errors import PlanError
from mixpert_py.tuner.ratio import SMALLEST_GAIN

# The normal distribution's standard deviation is 1.4826 median absolute deviations.
DEVIATIONS = 3 * 1.4826

Schemes = Mapping[str, str]
"""Site id → scheme name."""

PlanKey = frozenset[tuple[str, str]]
Rung = tuple[str, ...]


def plan_key(plan: Schemes) -> PlanKey:
    return frozenset(plan.items())


@dataclass(frozen=True, slots=True)
class Ladder:
    """Rungs of schemes, the most accurate first; schemes of one rung are incomparable."""

    rungs: tuple[Rung, ...]

    @property
    def top(self) -> str:
        return self.rungs[0][0]

    def level(self, site: str, scheme: str) -> int:
        """The number of the rung that holds a scheme. Raises PlanError if none does."""
        for number, rung in enumerate(self.rungs):
            if scheme in rung:
                return number
        names = ", ".join(name for rung in self.rungs for name in rung)
        raise PlanError(
            f"{site}: scheme {scheme!r} is not on the ladder {names}; "
            f"lock the site or choose another ladder"
        )

    def below(self, site: str, scheme: str) -> tuple[Rung, ...]:
        """The rungs under a scheme, nearest first."""
        return self.rungs[self.level(site, scheme) + 1 :]

    def above(self, site: str, scheme: str) -> Rung:
        """The rung over a scheme; empty at the top."""
        level = self.level(site, scheme)
        return self.rungs[level - 1] if level else ()


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What a profile has shown of the operands of a call site.

    sampled: the number of its calls that were profiled. spread: mean number of bits by which
    entries lie below the largest of their row of A or column of B, in the worst of these calls.
    transfer: seconds in which the profiled calls moved arrays. fed_by: site → profiled calls with
    an operand that was that site's result.
    """

    sampled: int = 0
    spread: float = 0.0
    transfer: float = 0.0
    fed_by: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class Operator:
    """A call site as a node of the dependency graph, with its profile.

    shapes: distinct (m, k, n) of its products. seconds: time of all its calls in the native run, in
    the unit of Measurement.site_seconds. local_errors: scheme → relative Frobenius error against
    FP64 on the profiled operands. predicted: scheme → predicted value of `seconds` under it.
    excluded: scheme → why it is not tried. locked: whether it keeps the scheme that the search
    starts with. sensitivity: the program's error per local error, until runs are known. elsewhere:
    whether only other processes call it, of which nothing is measured. path: of its file, where
    several files have products. unsuited: why no call can take a lower level, in words; "" where
    one can.
    """

    id: str
    expression: str = ""
    line: int = 0
    calls: int = 0
    shapes: tuple[tuple[int, int, int], ...] = ()
    seconds: float = 0.0
    local_errors: Mapping[str, float] = field(default_factory=dict)
    predicted: Mapping[str, float] = field(default_factory=dict)
    excluded: Mapping[str, "StopReason"] = field(default_factory=dict)
    locked: bool = False
    sensitivity: float = 1.0
    profile: Profile = field(default_factory=Profile)
    elsewhere: bool = False
    path: str = ""
    unsuited: str = ""

    @property
    def place(self) -> str:
        """The operator's line, with its file if several files have products."""
        return f"{self.path}:{self.line}" if self.path else str(self.line)


@dataclass(frozen=True, slots=True)
class TuningProblem:
    """The problem that a search solves: operators, and the limits on lowering them.

    edges: (P, S) where a value computed from P's result can reach an operand of S. ladder: rungs,
    the most accurate first. noise: the smallest gain that counts, in the unit of
    Measurement.site_seconds, for all sites or by site (those of several changed sites are added).
    start: site → scheme at which the search begins; other sites begin at the top of the ladder.
    until: the part of the program's time below which what is left to gain ends the search.
    """

    operators: tuple[Operator, ...]
    edges: frozenset[tuple[str, str]]
    ladder: Ladder
    budget: float
    noise: float | Mapping[str, float]
    start: Schemes = field(default_factory=dict)
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """The measurements of a run under a plan, or the medians of several runs.

    seconds: time of the whole program; site_seconds: site id → time in that product, all calls
    together; a site that did not run is absent. Both may be costs of a device model: a search only
    compares them with each other. problem: why the run failed, whose error is then NaN. not_taken:
    sites none of whose calls took the planned scheme, so that their times say nothing about it, and
    why. errors: observed value → its own error; `error` is the one that counts.
    """

    seconds: float
    error: float
    site_seconds: Mapping[str, float]
    problem: str | None = None
    not_taken: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)


def median_of(runs: Sequence[Measurement]) -> Measurement:
    """Repeated native runs as one: medians of the times, the largest errors."""
    return Measurement(
        median(run.seconds for run in runs),
        largest(run.error for run in runs),
        {site: median(times) for site, times in _times(runs).items()},
        errors=largest_of_each(run.errors for run in runs),
    )


def largest(errors: Iterable[float]) -> float:
    """The largest error; a NaN is larger than any other."""
    return max(errors, key=lambda error: (isnan(error), error))


def largest_of_each(runs: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The largest error, or share, of every name in several runs."""
    found: dict[str, float] = {}
    for errors in runs:
        for name, error in errors.items():
            found[name] = largest((error, found.get(name, 0.0)))
    return found


def time_noise(runs: Sequence[Measurement]) -> dict[str, float]:
    """Site → least gain that counts: three robust deviations from the median, at least 2 %."""
    noise = {}
    for site, times in _times(runs).items():
        centre = median(times)
        deviation = median(abs(time - centre) for time in times)
        noise[site] = max(DEVIATIONS * deviation, SMALLEST_GAIN * centre)
    return noise


def _times(runs: Sequence[Measurement]) -> dict[str, list[float]]:
    sites = {site: None for run in runs for site in run.site_seconds}
    return {site: [run.site_seconds.get(site, 0.0) for run in runs] for site in sites}


Measure = Callable[[Schemes], Measurement]
"""Runs the program under a plan. A program that fails, hangs or leaves nothing to compare is a
Measurement with a problem, not an exception.
"""


class StopReason(StrEnum):
    """Why a trial was kept or refused, and why an operator was lowered no further."""

    KEPT = "kept"
    NOT_FASTER = "not faster"
    NOT_TAKEN = "took no call"
    OVER_BUDGET = "over budget"
    FAILED = "failed"

    BOTTOM = "lowest rung"
    LOCKED = "locked"
    NEVER_RAN = "never ran"
    ELSEWHERE = "in another process"
    UNSUITED = "not used"
    TOO_SHORT = "too short"
    NEGLIGIBLE = "not timed"
    UNCLEAR = "cannot tell"
    PREDICTED = "predicted over budget"
    TOO_LITTLE = "gains too little"
    HOLD_OUT = "over budget on the hold-out"
    RAISED = "raised for a successor"
    START_OVER_BUDGET = "over budget at the start"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Trial:
    """A plan, its measurement, and how it was judged against the incumbent of that moment.

    changed: the sites in which the two plans differ. gain: time that those sites save together, NaN
    if the run failed. reason: KEPT where the trial passed, else why it was refused. Of incomparable
    schemes several may pass; only the best of them becomes the incumbent.
    """

    plan: Schemes
    measurement: Measurement
    changed: tuple[str, ...] = ()
    gain: float = 0.0
    reason: StopReason = StopReason.KEPT


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for an operator: its scheme and time before and after, and why it was lowered no
    further.

    detail: the problem of a failed run (FAILED), the id of the successor (RAISED), or why the level
    is not used (UNSUITED, NOT_TAKEN).
    """

    operator: Operator
    before: str
    after: str
    seconds_before: float
    seconds_after: float
    reason: StopReason
    detail: str = ""

    @property
    def local_error(self) -> float | None:
        """The error of this product alone under the chosen scheme; None: not profiled."""
        return self.operator.local_errors.get(self.after)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a search: the best plan that was run.

    verdicts: one for each operator, the longest first. trials: every plan that was judged, in
    order, the start included. start, best: the measurements of the start and of `plan`. best.error
    is over the budget only where the start is over it already.
    """

    plan: Schemes
    verdicts: tuple[Verdict, ...]
    trials: tuple[Trial, ...]
    start: Measurement
    best: Measurement
    budget: float
    interrupted: bool = False

    @property
    def lowered(self) -> bool:
        """Whether any operator runs another scheme than at the start."""
        return any(verdict.before != verdict.after for verdict in self.verdicts)

    def share(self, verdict: Verdict) -> float:
        """The operator's part of the program's time at the start, 0 to 1; 0 if that is unknown."""
        program = self.start.seconds
        return verdict.seconds_before / program if 0 < program < inf else 0.0
