"""The accuracy-speed plane: every plan that ran, by its time and its error, on logarithmic axes."""

from collections.abc import Iterator

from mixpert_py.tuner.records import Reason
from mixpert_py.tuner.report.html import EMPTY, Html, el
from mixpert_py.tuner.report.record import Record, TrialEntry
from mixpert_py.tuner.report.scale import LogScale, tick_text
from mixpert_py.tuner.report.summary import (
    chosen,
    error_name,
    quantity,
    time_unit,
    trial_error,
)
from mixpert_py.tuner.report.unit import Unit

WIDTH, HEIGHT = 760, 396
LEFT, RIGHT, TOP, BOTTOM = 64, 736, 44, 346
GUTTER = 24.0  # beyond an axis, for what a logarithm has no place for
LABEL = 7.0  # pixels a character of a label takes, about


def plane(record: Record) -> Html:
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
    across = LogScale.of(times.values(), LEFT + GUTTER, RIGHT)
    up = LogScale.of(errors, BOTTOM - GUTTER, TOP + GUTTER)
    places = {at: (across(time), _height(trials[at].error, up)) for at, time in times.items()}
    path = " ".join(f"{x:.1f},{y:.1f}" for at, (x, y) in places.items() if _is_kept(trials[at]))
    # Later ones lie on top: what matters most comes last.
    order = sorted(places, key=lambda at: (trials[at] is best, at == 0, _is_kept(trials[at])))
    return el(
        "svg",
        el("title", "Time and error of every plan that was run"),
        *_grid(across, up),
        *_axis_names(unit.name, error_name(record)),
        *_budget(record.budget, up),
        el("polyline", class_="path", points=path),
        *(_point(at, record, places[at], trials[at] is best, unit) for at in order),
        *_labels(places, record, best),
        class_="plane",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="group",
    )


def _height(error: float | None, up: LogScale) -> float:
    if error is None:
        return TOP + GUTTER / 2
    return up(error) if error > 0 else BOTTOM - GUTTER / 2


def _is_kept(trial: TrialEntry) -> bool:
    return trial.reason == Reason.KEPT


def _grid(across: LogScale, up: LogScale) -> Iterator[Html]:
    for tick in across.ticks():
        x = across(tick)
        yield el("line", class_="grid", x1=x, x2=x, y1=TOP, y2=BOTTOM)
        yield el("text", tick_text(tick), x=x, y=BOTTOM + 18, text_anchor="middle")
    for tick in up.ticks():
        y = up(tick)
        yield el("line", class_="grid", x1=LEFT, x2=RIGHT, y1=y, y2=y)
        yield el("text", tick_text(tick), x=LEFT - 8, y=y + 4, text_anchor="end")
    y = BOTTOM - GUTTER / 2
    yield el("text", "exact", x=LEFT - 8, y=y + 4, text_anchor="end")
    yield el("path", class_="axis", d=f"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}")


def _axis_names(unit: str, error: str) -> Iterator[Html]:
    name = f"{error} of the program"
    yield el("text", name, class_="name", x=12, y=22)
    yield el("text", "↓ more accurate", class_="hint", x=12 + len(name) * LABEL, y=22)
    y = HEIGHT - 10
    yield el("text", f"time of the program, {unit}", class_="name", x=RIGHT, y=y, text_anchor="end")
    yield el("text", "← faster", class_="hint", x=LEFT, y=y)


def _budget(budget: float | None, up: LogScale) -> Iterator[Html]:
    """The line, and what is over it, shaded."""
    if budget is None:
        return
    y = _height(budget, up)
    yield el("rect", class_="over", x=LEFT, y=TOP, width=RIGHT - LEFT, height=y - TOP)
    yield el("line", class_="budget", x1=LEFT, x2=RIGHT, y1=y, y2=y)
    text = f"budget {tick_text(budget)}" if budget else "budget 0"
    yield el("text", text, class_="budget-name", x=RIGHT - 6, y=y - 6, text_anchor="end")


def _point(at: int, record: Record, place: tuple[float, float], is_best: bool, unit: Unit) -> Html:
    """A square for the start, a disc for what was kept, a ring for what was refused."""
    x, y = place
    trial = record.trials[at]
    time, error = quantity(trial.time, unit), trial_error(record, trial)
    said = f"Plan {at + 1}: {time}, {error_name(record)} {error}, {trial.reason}"
    kind = "start" if at == 0 else "kept" if _is_kept(trial) else "refused"
    if kind == "start":
        shape = el("rect", x=x - 5, y=y - 5, width=10, height=10)
    else:
        shape = el("circle", cx=x, cy=y, r=5.0)
    halo = el("circle", class_="halo", cx=x, cy=y, r=10.0) if is_best else EMPTY
    return el(
        "a",
        el("title", said),
        halo,
        shape,
        class_=f"point {kind}",
        href=f"#trial-{at + 1}",
        aria_label=said,
        data_trial=at + 1,
    )


def _labels(
    places: dict[int, tuple[float, float]], record: Record, best: TrialEntry | None
) -> Iterator[Html]:
    """Names of the start and of the chosen plan; one where they are the same."""
    at_best = next((at for at in places if record.trials[at] is best), None)
    named = {} if at_best is None else {at_best: "chosen"}
    if 0 in places:
        named[0] = "start, and chosen" if at_best == 0 else "start"
    for at, name in named.items():
        x, y = places[at]
        leftwards = x + 14 + LABEL * len(name) > RIGHT
        yield el(
            "text",
            name,
            class_="label",
            x=x - 14 if leftwards else x + 14,
            y=y + 4,
            text_anchor="end" if leftwards else "start",
        )
