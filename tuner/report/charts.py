"""The pictures of the report: every plan that ran, the steps of a search, the other inputs."""

from itertools import pairwise
from math import inf

from mixpert_py.tuner.records import Reason
from mixpert_py.tuner.report import figures
from mixpert_py.tuner.report.figures import GROUND, INK, LEVELS, SOFT
from mixpert_py.tuner.report.record import Record
from mixpert_py.tuner.report.summary import chosen, error_name, time_unit
from mixpert_py.tuner.report.unit import budget_text

KEPT = LEVELS[3]
MAX_NUMBERED = 30  # plans, more of which have no room for numbers


def plane(record: Record) -> str:
    """Every plan at its time and its error, on logarithmic axes; empty where none has a time.

    A plan whose run failed, or whose time is unknown, has no place in it.
    """
    unit, best = time_unit(record), chosen(record)
    ran = [trial for trial in record.trials if trial.time and not trial.problem]
    if not ran:
        return ""
    with figures.style():
        figure, (axes,) = figures.panels(1)
        budget = record.budget
        known = [*(trial.error for trial in ran), *([] if budget is None else [budget])]
        figures.errors_axis(axes, known, error_name(record))
        places = [
            ((trial.time or 0.0) * unit.per_second, figures.place(axes, trial.error))
            for trial in ran
        ]
        kept = [
            place for trial, place in zip(ran, places, strict=True) if trial.reason == Reason.KEPT
        ]
        if kept:
            axes.plot(*zip(*kept, strict=True), color=KEPT, alpha=0.5)
        for trial, (x, y) in zip(ran, places, strict=True):
            is_kept, is_start = trial.reason == Reason.KEPT, trial is record.trials[0]
            color = INK if is_start else KEPT if is_kept else SOFT
            fill = color if is_start or is_kept else GROUND
            axes.plot(x, y, "s" if is_start else "o", color=color, markerfacecolor=fill)
            number = [f"#{1 + record.trials.index(trial)}"] * (len(ran) <= MAX_NUMBERED)
            name = ", ".join(number + ["start"] * is_start + ["chosen"] * (trial is best))
            axes.annotate(name, (x, y), xytext=(8, 6), textcoords="offset points")
            if trial is best:
                axes.plot(x, y, "o", color=KEPT, markerfacecolor="none", markersize=13)
        figures.budget_line(axes, budget)
        axes.set_xscale("log")
        figures.plain_ticks(axes, [x for x, _ in places])
        axes.set_xlabel(f"time of the program, {unit.name}  (← faster)")
        return figures.svg(figure, "Time and error of every plan that was run")


def staircase(record: Record) -> str:
    """The gain of each step over its error; empty where there is no step with a gain."""
    steps = [step for step in record.steps or () if 0 < (step.gain or 0.0) < inf]
    if not steps:
        return ""
    with figures.style():
        figure, (axes,) = figures.panels(1)
        errors = [step.error or 0.0 for step in steps]
        figures.errors_axis(axes, errors, error_name(record))
        corners = [
            (step.gain or 1.0, figures.place(axes, error))
            for step, error in zip(steps, errors, strict=True)
        ]
        bottom, top = axes.get_ylim()
        path = [(1.0, bottom)]
        for (x, _), (to_x, y) in pairwise([path[0], *corners]):
            path += [(x, y), (to_x, y)]
        path.append((path[-1][0], top))
        axes.plot(*zip(*path, strict=True), color=KEPT)
        axes.fill_betweenx([y for _, y in path], 1.0, [x for x, _ in path], color=KEPT, alpha=0.1)
        axes.plot(*zip(*corners, strict=True), "o", color=KEPT)
        for step, place in zip(steps, corners, strict=True):
            axes.annotate(
                f"{step.gain:.2f}×  within {budget_text(step.budget or 0.0)}",
                place,
                xytext=(7, -3),
                textcoords="offset points",
            )
        axes.set_xscale("log")
        axes.set_xlim(1.0, 1.6 * max(x for x, _ in corners))
        figures.plain_ticks(axes, [1.0, *(x for x, _ in corners)])
        axes.set_xlabel("times fewer products" if record.unit == "products" else "times as fast")
        return figures.svg(figure, "The gain of each step over its error")


def inputs(record: Record) -> str:
    """The error on each other input, the smallest first; empty for fewer than two inputs."""
    errors = sorted(entry.error for entry in record.hold_outs if entry.error is not None)
    if len(errors) < 2:
        return ""
    # Where values have budgets of their own, errors are shares of them.
    limit = record.budget if record.criterion else 1.0
    with figures.style():
        figure, (axes,) = figures.panels(1, 2.8)
        known = [*errors, *([] if limit is None else [limit])]
        figures.errors_axis(axes, known, error_name(record))
        heights = [figures.place(axes, error) for error in errors]
        axes.plot(range(1, len(errors) + 1), heights, "o", color=KEPT, markersize=4)
        figures.budget_line(axes, limit)
        axes.set_xticks([])
        axes.set_xlabel("other inputs, by their errors")
        return figures.svg(figure, "The error on each other input")
