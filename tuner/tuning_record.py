"""A tuning as plain data: it is printed as JSON, stored beside the plan, and read for a report.

Times are in `unit`; a number that is unknown, not finite or above LARGEST is None.
"""

import json
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from mixpert_py.errors import MixPertError, one_line
from mixpert_py.plan import Criterion, Provenance
from mixpert_py.tuner.records import Outcome, Profile, Trial, Verdict

LARGEST = 1e300  # error or budget: pictures have room for powers of ten around it
Size = Annotated[float, msgspec.Meta(ge=0, le=LARGEST)]


class JsonObject(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON object: immutable, and tolerant of the keys of a later version."""


class OperatorEntry(Profile, frozen=True, kw_only=True):
    """An operator: its profile, its level before and after, and why it stopped there.

    share: its part of the program's time at the start. shapes: (m, k, n). local_errors: level →
    error of this product alone. detail: the problem of a failed run, or the id of the successor
    that it was raised for.
    """

    id: str
    line: int
    expression: str
    calls: int
    shapes: list[list[int]]
    locked: bool
    share: float | None
    before: str
    after: str
    time_before: float | None
    time_after: float | None
    local_error: float | None
    local_errors: dict[str, float | None]
    reason: str
    detail: str
    path: str = ""

    @property
    def place(self) -> str:
        """The operator's line, with its file if several files have products."""
        return f"{self.path}:{self.line}" if self.path else str(self.line)


class TrialEntry(JsonObject, frozen=True, kw_only=True):
    """A plan that was run. changed: site → level that differs from the incumbent's."""

    changed: dict[str, str]
    plan: dict[str, str]
    time: Size | None
    error: Size | None
    problem: str | None
    gain: float | None
    reason: str


class Gain(JsonObject, frozen=True, kw_only=True):
    """The time of the program before and after, in the unit of the record.

    verdict: a `Pace`, or "predicted", or "" where nothing was lowered or verified. times: how many
    times as fast the program is, and least and most its interval; None unless it is faster. Where
    it is not, `after` is `before`.
    """

    before: float | None = None
    after: float | None = None
    times: float | None = None
    least: float | None = None
    most: float | None = None
    verdict: Literal["", "predicted", "faster", "not faster", "cannot tell"] = ""


class VerificationEntry(JsonObject, frozen=True, kw_only=True):
    """Measurements in fresh processes, in seconds; `lowered`: time in the lowered products.

    least, most: the interval of its ratio to the native time, `native_lowered`.
    """

    error: Size | None
    worst: str
    native_seconds: float | None
    spread: float | None
    native_lowered: float | None
    lowered: float | None
    least: float | None = None
    most: float | None = None


class ValueEntry(JsonObject, frozen=True, kw_only=True):
    """An observed value: its error measure, its budget, and its error under the plan."""

    name: str
    criterion: str
    budget: Size | None
    error: Size | None


class InputEntry(JsonObject, frozen=True, kw_only=True):
    """A hold-out input: its arguments, and the plan's error on it."""

    arguments: str
    error: Size | None


class TuningRecord(JsonObject, frozen=True, kw_only=True):
    """A search and its plan.

    criterion: None where the values have limits of their own: all errors that are not one value's
    are shares of a budget then, the largest of those that the values take.
    plan: what the search found; schemes: what the plan file says. reverted: whether a plan was
    found and taken back, since it showed no gain: `plan` is the start of the search then. unclear:
    whether the machine did not tell if the plan is faster. gain: the time before and after, that
    all reports show; error: of the search's own runs. hold_out: the plan's largest error on other
    inputs, hold_outs; hold_out_rate: the part of such inputs that is over the budget at most.
    notes: sentences on what was compared, and on what a plan changes besides.
    """

    plan_file: str = ""
    unit: Literal["seconds", "products"]
    interrupted: bool
    criterion: str | None
    budget: Size | None
    error: Size | None
    gain: Gain = Gain()
    plan: dict[str, str]
    operators: list[OperatorEntry]
    trials: list[TrialEntry]
    schemes: dict[str, str] = {}
    values: list[ValueEntry] = []
    verification: VerificationEntry | None = None
    reverted: bool = False
    unclear: bool = False
    hold_out: Size | None = None
    hold_outs: list[InputEntry] = []
    hold_out_rate: float | None = None
    provenance: Provenance = Provenance()
    device: str = ""
    notes: list[str] = []

    @property
    def predicted(self) -> bool:
        """Whether times are predicted: in slice products, or in seconds of a certain GPU."""
        return self.unit == "products" or bool(self.device)


def record(
    outcome: Outcome, criterion: str | None = "frobenius", predicted: bool = False, device: str = ""
) -> TuningRecord:
    """The record of a search. predicted: times are, in seconds of `device` or slice products."""
    return TuningRecord(
        unit="products" if predicted and not device else "seconds",
        device=device,
        interrupted=outcome.interrupted,
        criterion=criterion,
        budget=finite(outcome.budget),
        error=finite(outcome.best.error),
        gain=searched_gain(outcome, predicted),
        plan=dict(outcome.plan),
        operators=[_operator(verdict, outcome.share(verdict)) for verdict in outcome.verdicts],
        trials=[_trial(trial) for trial in outcome.trials],
    )


def searched_gain(outcome: Outcome, predicted: bool) -> Gain:
    """The gain that a search predicts; without predictions, the program's time and no verdict."""
    before = finite(outcome.start.seconds)
    if not (predicted and outcome.lowered):
        return Gain(before=before, after=before)
    after = finite(outcome.best.seconds)
    times = before / after if before and after else None
    return Gain(before=before, after=after, times=times, verdict="predicted")


def read(entries: object, name: str) -> TuningRecord:
    """The record in plain data. Raises MixPertError, in one line, if there is none in it."""
    try:
        json.dumps(entries, allow_nan=False)  # Python reads numbers that JSON has not
        return msgspec.convert(entries, TuningRecord)
    except ValueError as error:  # what JSON calls text need not be valid Unicode
        raise MixPertError(f"{name}: not the result of a tuning: {one_line(error)}") from None


def value_entries(criteria: Iterable[Criterion]) -> list[ValueEntry]:
    return [
        ValueEntry(
            name=value.name,
            criterion=value.metric,
            budget=finite(value.budget),
            error=finite(value.achieved),
        )
        for value in criteria
    ]


def finite(value: float | None) -> float | None:
    """A number as float; None where it is not finite, or larger than a record has room for."""
    return float(value) if value is not None and abs(value) <= LARGEST else None


def _operator(verdict: Verdict, share: float) -> OperatorEntry:
    operator = verdict.operator
    alike = ("id", "line", "path", "expression", "calls", "locked")
    return OperatorEntry(
        **{name: getattr(operator, name) for name in alike},
        shapes=[list(shape) for shape in operator.shapes],
        share=finite(share),
        before=verdict.before,
        after=verdict.after,
        time_before=finite(verdict.seconds_before),
        time_after=finite(verdict.seconds_after),
        local_error=finite(verdict.local_error),
        local_errors={name: finite(e) for name, e in operator.local_errors.items()},
        reason=str(verdict.reason),
        detail=verdict.detail,
        **{name: getattr(operator.profile, name) for name in Profile.__struct_fields__},
    )


def _trial(trial: Trial) -> TrialEntry:
    return TrialEntry(
        changed={site: trial.plan[site] for site in trial.changed},
        plan=dict(trial.plan),
        time=finite(trial.measurement.seconds),
        error=finite(trial.measurement.error),
        problem=trial.measurement.problem,
        gain=finite(trial.gain),
        reason=str(trial.reason),
    )
