"""The staircase of accuracy and speed: a row and a stair for each step of a search."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from typing import ClassVar

from mixpert_py.tuner.report.record import Record, StepEntry
from mixpert_py.tuner.report.scale import Frame, LogScale, apart, tick_text
from mixpert_py.tuner.report.summary import error_name, size
from mixpert_py.tuner.report.unit import budget_text, share_text


def step_names(record: Record) -> tuple[str, ...]:
    """The headings of the table of steps."""
    gain = "gain, predicted" if record.predicted else "gain of the products"
    if record.unit == "products":
        gain = "fewer products, predicted"
    whole = () if record.predicted else ("of whole runs",)
    return ("budget", error_name(record), gain, *whole, "products lowered")


def step_rows(record: Record) -> list[tuple[str, ...]]:
    """The cells of the table: the program as it is, then each step."""
    total, whole = len(record.operators), not record.predicted
    start = record.trials[0].error if record.trials else None
    rows = [("as it is", size(record, start), "1.00×", *["1.00×"] * whole, f"0 of {total}")]
    for step in record.steps or ():
        row = (
            step_budget(record, step),
            size(record, step.error),
            _times(step.gain),
            *[_times(step.program)] * whole,
            f"{step.lowered} of {total}",
        )
        rows.append(row)
    return rows


def step_budget(record: Record, step: StepEntry) -> str:
    """The budget of a step as it is typed, or the share of the budgets that were typed."""
    budget = step.budget or 0.0
    return budget_text(budget) if record.criterion else share_text(budget)


def notes(record: Record) -> list[str]:
    """Sentences below the table of steps."""
    found = ["Each step is faster than all above it, and was run in fresh processes."]
    if not record.steps:
        found = ["There is no step: no plan was faster than the program as it is."]
    if record.unclear:
        found = [
            "There is no step: this machine did not tell whether a lower level is faster. Try "
            "while it is idle, or for a GPU whose times are predicted (--device NAME)."
        ]
    if record.unit == "products":
        found.append("Slice products are counted, which are no times.")
    if record.left_out:
        one = record.left_out == 1
        found.append(
            f"{'One plan' if one else f'{record.left_out} plans'} that the search found "
            f"{'is' if one else 'are'} left out: fresh processes did not confirm the error, or "
            "that it is faster than the step before."
        )
    return found


def _times(gain: float | None) -> str:
    return "–" if gain is None else f"{gain:.2f}×"


@dataclass(frozen=True, slots=True)
class Stair:
    """A corner of the picture: one step, with its name to the right or the left."""

    x: float
    y: float
    anchor: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Staircase(Frame):
    """The picture, in pixels from the left and the top: gain across, error up.

    across, up: places and texts of ticks. path: the edge of the stairs, as SVG takes it; area: what
    lies within them. The more error is allowed, the further to the right the stairs reach.
    """

    GAP: ClassVar[float] = 10.0  # between a corner and its name

    across: tuple[tuple[float, str], ...]
    up: tuple[tuple[float, str], ...]
    path: str
    area: str
    stairs: tuple[Stair, ...]


def staircase(record: Record) -> Staircase | None:
    """The picture; None where there is no step with a gain."""
    steps = [step for step in record.steps or () if 0 < (step.gain or 0.0) < inf]
    if not steps:
        return None
    gains = [step.gain or 1.0 for step in steps]
    errors = [step.error or 0.0 for step in steps]
    across = LogScale.of([1.0, *gains], Staircase.LEFT, Staircase.RIGHT)
    up = LogScale.of(
        [*errors, *(step.budget or 0.0 for step in steps)],
        Staircase.BOTTOM - Staircase.GUTTER,
        Staircase.TOP,
    )
    exact = Staircase.BOTTOM - Staircase.GUTTER / 2
    corners = [
        (across(gain), up(error) if error > 0 else exact)
        for gain, error in zip(gains, errors, strict=True)
    ]
    path = _edge(across(1.0), corners)
    area = [(Staircase.LEFT, Staircase.BOTTOM), *path, (Staircase.LEFT, Staircase.TOP)]
    stairs = [_stair(record, step, corner) for step, corner in zip(steps, corners, strict=True)]
    ticks = [(across(tick), f"{tick_text(tick)}×") for tick in across.ticks()]
    lowest = exact - 2 * Staircase.GAP  # below, the word for an error of 0 is in a tick's way
    return Staircase(
        tuple(apart(ticks, Staircase.LETTER)),
        tuple((up(tick), tick_text(tick)) for tick in up.ticks() if up(tick) < lowest),
        _points(path),
        _points(area),
        tuple(_named_apart(stairs)),
    )


def _edge(start: float, corners: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The stairs from the bottom to the top: up to the error of a step, then across to its gain."""
    path = [(start, float(Staircase.BOTTOM))]
    for (x, _), (to_x, y) in pairwise([path[0], *corners]):
        path += [(x, y), (to_x, y)]
    return [*path, (path[-1][0], float(Staircase.TOP))]


def _stair(record: Record, step: StepEntry, corner: tuple[float, float]) -> Stair:
    x, y = corner
    name = _times(step.gain)
    fits = x + Staircase.GAP + len(name) * Staircase.LETTER < Staircase.RIGHT
    text = (
        f"Within {step_budget(record, step)}: {error_name(record)} {size(record, step.error)}, "
        f"gain {name}, products lowered: {step.lowered}"
    )
    return Stair(x, y, "start" if fits else "end", name, text)


def _named_apart(stairs: Sequence[Stair]) -> list[Stair]:
    """The stairs; of two whose names would cover one another, the lower one has none."""
    found: list[Stair] = []
    for stair in reversed(stairs):
        above = [other for other in found if other.name]
        if any(_covers(stair, other) for other in above):
            stair = replace(stair, name="")
        found.append(stair)
    return found[::-1]


def _covers(stair: Stair, other: Stair) -> bool:
    (left, right), (its_left, its_right) = _extent(stair), _extent(other)
    return left < its_right and its_left < right and abs(stair.y - other.y) < Staircase.LINE


def _extent(stair: Stair) -> tuple[float, float]:
    """Where the name of a stair begins and ends."""
    width = Staircase.GAP + len(stair.name) * Staircase.LETTER
    return (stair.x, stair.x + width) if stair.anchor == "start" else (stair.x - width, stair.x)


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
