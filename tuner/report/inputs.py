"""The errors of a plan on other inputs: a point for each, the smallest error first."""

from dataclasses import dataclass

from mixpert_py.tuner.report.record import Record
from mixpert_py.tuner.report.scale import Frame, LogScale, tick_text
from mixpert_py.tuner.report.summary import error_name, size


@dataclass(frozen=True, slots=True)
class Input:
    """A point: one input, and what is said of it."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Inputs(Frame):
    """The picture, in pixels from the left and the top: inputs across, error up.

    up: places and texts of ticks. budget: the place of its line, and its name; None where any error
    is allowed. radius: of a point.
    """

    up: tuple[tuple[float, str], ...]
    budget: tuple[float, str] | None
    points: tuple[Input, ...]
    radius: float


def inputs(record: Record) -> Inputs | None:
    """The picture; None where the plan was tried on fewer than two other inputs."""
    known = [(entry.error, entry.arguments) for entry in record.hold_outs]
    found = sorted((error, arguments) for error, arguments in known if error is not None)
    if len(found) < 2:
        return None
    # Where values have budgets of their own, errors are shares of them.
    limit = record.budget if record.criterion else 1.0
    exact = Inputs.BOTTOM - Inputs.GUTTER / 2
    up = LogScale.of(
        [*(error for error, _ in found), *([] if limit is None else [limit])],
        Inputs.BOTTOM - Inputs.GUTTER,
        Inputs.TOP,
    )
    step = (Inputs.RIGHT - Inputs.LEFT) / len(found)
    points = tuple(
        Input(
            Inputs.LEFT + (at + 0.5) * step,
            up(error) if error > 0 else exact,
            f"{arguments}: {error_name(record)} {size(record, error)}",
        )
        for at, (error, arguments) in enumerate(found)
    )
    lowest = exact - Inputs.LINE  # below, "exact" is in a tick's way
    return Inputs(
        tuple((up(tick), tick_text(tick)) for tick in up.ticks() if up(tick) < lowest),
        None if not limit else (up(limit), f"budget {tick_text(limit)}"),
        points,
        min(5.0, max(1.5, 0.4 * step)),
    )
