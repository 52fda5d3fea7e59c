"""The accuracy-speed plane: every plan that ran at its time and its error, on logarithmic axes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from mixpert_py.tuner.records import Reason
from mixpert_py.tuner.report.record import Record, TrialEntry
from mixpert_py.tuner.report.scale import Frame, LogScale, apart, tick_text
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
    """The name of the start, or of the chosen plan, near its point."""

    x: float
    y: float
    anchor: Literal["start", "middle", "end"]
    text: str


@dataclass(frozen=True, slots=True)
class Plane(Frame):
    """The picture, in pixels from the left and the top.

    across, up: places and texts of ticks. budget: the place of its line, and its name; None where
    any error is allowed. path: the points of the plans that were kept, as SVG takes them. points:
    those that matter most come last, on top of the others.
    """

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
    points = tuple(_point(record, at, places[at], trials[at] is best) for at in order)
    path = [(x, y) for at, (x, y) in places.items() if _is_kept(trials[at])]
    lowest = Plane.BOTTOM - Plane.GUTTER / 2 - Plane.LINE  # below, "exact" is in a tick's way
    return Plane(
        tuple(apart([(across(tick), tick_text(tick)) for tick in across.ticks()], Plane.LETTER)),
        tuple((up(tick), tick_text(tick)) for tick in up.ticks() if up(tick) < lowest),
        budget,
        " ".join(f"{x:.1f},{y:.1f}" for x, y in path),
        points,
        tuple(_labels(points, path, budget)),
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
    points: Sequence[Point],
    path: Sequence[tuple[float, float]],
    budget: tuple[float, str] | None,
) -> Iterator[Label]:
    """Names of the chosen plan and of the start, one where they are the same: each where it covers
    least of the points, of the path, and of the names of the budget and of each other.
    """
    taken = [(point.x, point.y) for point in points]
    for (x, y), (to_x, to_y) in pairwise(path):
        taken += [(x + (to_x - x) * i / 20, y + (to_y - y) * i / 20) for i in range(21)]
    if budget:
        width = int(Plane.LETTER * len(budget[1]))
        taken += [(Plane.RIGHT - right, budget[0] - 10) for right in range(0, width + 6, 6)]
    for point in points[::-1]:
        if not point.chosen and point.kind != "start":
            continue
        both = point.chosen and point.kind == "start"
        text = "start, and chosen" if both else "chosen" if point.chosen else "start"
        yield _label(point, text, taken)


def _label(point: Point, text: str, taken: list[tuple[float, float]]) -> Label:
    """The name of a point; the places that it covers are added to what is taken."""
    width, half = Plane.LETTER * len(text), Plane.LINE / 2
    right, left, middle = point.x + 14, point.x - 14 - width, point.x - width / 2
    below, above = point.y + 14 + half, point.y - 14 - half
    beside = [(right, point.y), (left, point.y), (middle, below), (middle, above)]
    askew = [(x, y) for y in (below, above) for x in (right, left)]
    places = [
        (x, y)
        for x, y in beside + askew
        if Plane.LEFT < x < Plane.RIGHT - width and Plane.TOP + half < y < Plane.BOTTOM - half
    ]
    x, y = min(places or beside, key=lambda place: _covered(place, width, taken))
    taken += [(x + width * i / 8, y) for i in range(9)]
    if x == right:
        return Label(x, y + 5, "start", text)
    if x == left:
        return Label(x + width, y + 5, "end", text)
    return Label(x + width / 2, y + 5, "middle", text)


def _covered(place: tuple[float, float], width: float, taken: Sequence[tuple[float, float]]) -> int:
    """How many of the places that are taken a name would cover, or touch. place: its left end."""
    x, y = place
    return sum(x - 8 < at < x + width + 8 and abs(y - up) < Plane.LINE / 2 + 8 for at, up in taken)
