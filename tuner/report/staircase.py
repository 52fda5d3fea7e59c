"""The staircase of accuracy and speed: a row of a table for each step of a search."""

from mixpert_py.tuner.report.record import Record, StepEntry
from mixpert_py.tuner.report.summary import error_name, size
from mixpert_py.tuner.report.unit import budget_text, share_text


def step_names(record: Record) -> tuple[str, ...]:
    """The headings of the table of steps."""
    gain = "gain, predicted" if record.predicted else "gain"
    if record.unit == "products":
        gain = "fewer products, predicted"
    return ("budget", error_name(record), gain, "products lowered")


def step_rows(record: Record) -> list[tuple[str, ...]]:
    """The cells of the table: the program as it is, then each step."""
    total = len(record.operators)
    start = record.trials[0].error if record.trials else None
    rows: list[tuple[str, ...]] = [("as it is", size(record, start), "1.00×", f"0 of {total}")]
    for step in record.steps or ():
        row = (
            step_budget(record, step),
            size(record, step.error),
            _times(step.gain),
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
