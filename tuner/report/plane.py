"""The accuracy-speed plane: every plan that ran at its time and its error, on logarithmic axes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from mixpert_py.tuner.records import Reason
from mixpert_py.tuner.report.record import Record, TrialEntry
from mixpert_py.tuner.report.scale import LogScale, tick_text
from mixpert_py.tuner.report.summary import (
    chosen,
    error_name,
    time_unit,
    trial_error,
)


@dataclass(frozen=True, slots=True)
class Point:
    """One plan: a square for the start, a disc for what was kept, a ring for what was refused."""

    number: int
    kind: Literal["start", "kept", "refused"]
    x: float
    y: float
    chosen: bool
    text: str


@dataclass(frozen=True, slots=True)
class Label:
    """The name of the start, or of the chosen plan, beside its point."""

    x: float
    y: float
    anchor: Literal["start", "end"]
    text: str


@dataclass(frozen=True, slots=True)
class Plane:
    """The picture, in pixels from the left and the top.

    across, up: places and texts of ticks. budget: the place of its line, and its name; None where
    any error is allowed. path: the points of the plans that were kept, as SVG takes them. points:
    those that matter most come last, on top of the others.
    """

    WIDTH: ClassVar[int] = 760
    HEIGHT: ClassVar[int] = 396
    LEFT: ClassVar[int] = 64
    RIGHT: ClassVar[int] = 736
    TOP: ClassVar[int] = 44
    BOTTOM: ClassVar[int] = 346
    GUTTER: ClassVar[float] = 24.0  # beyond an axis, for 0 and for what is not finite
    LETTER: ClassVar[float] = 7.0  # width of a character of a text, about

    across: tuple[tuple[float, str], ...]
    up: tuple[tuple[float, str], ...]
    budget: tuple[float, str] | None
    path: str
    points: tuple[Point, ...]
    labels: tuple[Label, ...]


def plane(record: Record) -> Plane:
    """The picture. An error of zero lies below the axis, one that is not finite above it.

    A plan whose run failed, or whose time is unknown, has no place in it.
    """
    unit, best, trials = time_unit(record), chosen(record), record.trials
    times = {
        at: trial.time * unit.per_second
        for at, trial in enumerate(trials)
        if trial.time and not trial.problem
    }
    errors = [error for at in times if (error := trials[at].error) is not None]
    if record.budget is not None:
        errors.append(record.budget)
    across = LogScale.of(times.values(), Plane.LEFT + Plane.GUTTER, Plane.RIGHT)
    up = LogScale.of(errors, Plane.BOTTOM - Plane.GUTTER, Plane.TOP + Plane.GUTTER)
    places = {at: (across(time), _height(trials[at].error, up)) for at, time in times.items()}
    order = sorted(places, key=lambda at: (trials[at] is best, at == 0, _is_kept(trials[at])))
    budget = None
    if record.budget is not None:
        text = f"budget {tick_text(record.budget)}" if record.budget else "budget 0"
        budget = _height(record.budget, up), text
    return Plane(
        tuple((across(tick), tick_text(tick)) for tick in across.ticks()),
        tuple((up(tick), tick_text(tick)) for tick in up.ticks()),
        budget,
        " ".join(f"{x:.1f},{y:.1f}" for at, (x, y) in places.items() if _is_kept(trials[at])),
        tuple(_point(record, at, places[at], trials[at] is best) for at in order),
        tuple(_labels(places, record, best)),
    )


def _height(error: float | None, up: LogScale) -> float:
    if error is None:
        return Plane.TOP + Plane.GUTTER / 2
    return up(error) if error > 0 else Plane.BOTTOM - Plane.GUTTER / 2


def _is_kept(trial: TrialEntry) -> bool:
    return trial.reason == Reason.KEPT


def _point(record: Record, at: int, place: tuple[float, float], is_best: bool) -> Point:
    trial = record.trials[at]
    time, error = time_unit(record).quantity(trial.time), trial_error(record, trial)
    text = f"Plan {at + 1}: {time}, {error_name(record)} {error}, {trial.reason}"
    kept: Literal["kept", "refused"] = "kept" if _is_kept(trial) else "refused"
    return Point(at + 1, "start" if at == 0 else kept, *place, is_best, text)


def _labels(
    places: Mapping[int, tuple[float, float]], record: Record, best: TrialEntry | None
) -> Iterator[Label]:
    """Names of the start and of the chosen plan; one where they are the same."""
    at_best = next((at for at in places if record.trials[at] is best), None)
    named = {} if at_best is None else {at_best: "chosen"}
    if 0 in places:
        named[0] = "start, and chosen" if at_best == 0 else "start"
    for at, name in named.items():
        x, y = places[at]
        if x + 14 + Plane.LETTER * len(name) > Plane.RIGHT:
            yield Label(x - 14, y + 4, "end", name)
        else:
            yield Label(x + 14, y + 4, "start", name)
