"""The pictures of the report: every plan that ran, and the other inputs."""

from mixpert_py.tuner.records import Reason
from mixpert_py.tuner.report import figures
from mixpert_py.tuner.report.figures import GROUND, INK, LEVELS, SOFT
from mixpert_py.tuner.report.record import Record
from mixpert_py.tuner.report.summary import chosen, error_name, time_unit

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
