"""The words and numbers that the page and the Markdown report share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import median

from mixpert_py.tuner.ratio import Pace
from mixpert_py.tuner.records import Reason
from mixpert_py.tuner.report.record import Gain, OperatorEntry, Record, TrialEntry, ValueEntry
from mixpert_py.tuner.report.unit import (
    PRODUCTS,
    Unit,
    budget_text,
    clock_unit,
    error_text,
    share_text,
)

NO_GAIN = ", no measurable gain"
# How times were compared: `python` itself lets OpenBLAS's idle threads spin for longer.
SAME_SETTINGS = (
    "Times are measured in fresh processes, native and planned in turn, with the same BLAS "
    "settings in both."
)
# A gain of a program that takes less seconds may be lost where `mixpert run` starts it.
SHORT_PROGRAM = 1.0
START_UP = "Not counted: `mixpert run` starts about 0.1 s later than Python."
COLORS = 6  # of levels below native, most accurate first; the style sheet has them

# The meaning of a reason: for a trial, or for the level below the one that an operator has.
MEANING: Mapping[str, str] = {
    Reason.KEPT: "Within the budget, and faster by the search's figures: the search continued from "
    "this plan.",
    Reason.NOT_FASTER: "It saves no time, or less than the clock's noise.",
    Reason.NO_GAIN: "It is as fast and as exact as before.",
    Reason.NOT_TAKEN: "No call of the product could use the level, so it ran as before.",
    Reason.OVER_BUDGET: "In a run the program's error exceeded the budget, or its used part.",
    Reason.HOLD_OUT: "The error exceeded the budget on the hold-out data only.",
    Reason.FAILED: "The program failed under the level, or left nothing to compare.",
    Reason.BOTTOM: "This is the least accurate level that is tried.",
    Reason.LOCKED: "The plan, or a comment in the source, locks the level.",
    Reason.NEVER_RAN: "The program did not call the product.",
    Reason.ELSEWHERE: "Only processes that the program starts make the product, which are not "
    "measured.",
    Reason.UNSUITED: "No lower level suits the product's operands.",
    Reason.TOO_SHORT: "The product's time is below the clock's noise, so no gain could be seen.",
    Reason.NEGLIGIBLE: "The product takes less than 1 % of the time of all products.",
    Reason.UNCLEAR: "Timed alone, the level and the original took the same time within the noise, "
    "or there was no time to measure it. Try again on an idle machine.",
    Reason.PREDICTED: "The program's predicted error exceeds the budget, so the level was not run.",
    Reason.TOO_LITTLE: "The level would save less of the program's time than a run is worth "
    "(`--until`), or less than 0.5 % of the products' time.",
    Reason.SEARCHED: "Every plan, or a sample of plans, was run, and the best one has this level.",
    Reason.RAISED: "The product was raised again so that a longer one could be lowered.",
    Reason.START_OVER_BUDGET: "The program exceeded the budget before anything was lowered.",
    Reason.INTERRUPTED: "The search was interrupted before it finished with the product.",
}


@dataclass(frozen=True, slots=True)
class Program:
    """The parts of a report that come from the program, not from the record.

    text: its source, empty where it is not shown. spans: site → its place in `text`.
    numbers: site → the number that the graph gives it. graph: its table as text, or empty.
    notes: sentences at the top of the report, such as that the source has changed.
    """

    name: str
    text: str = ""
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    graph: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """An operator in a report, with its number and the level that the plan gives it."""

    number: int
    entry: OperatorEntry
    level: str
    time_after: float | None


def rows(record: Record, program: Program) -> list[Row]:
    """The operators, longest first. Those missing in the source are numbered after the others."""
    behind = max(program.numbers.values(), default=0)
    found = []
    for entry in record.operators:
        number = program.numbers.get(entry.id)
        if number is None:
            behind = number = behind + 1
        level = record.schemes.get(entry.id, entry.after)
        after = entry.time_after if level == entry.after else entry.time_before
        found.append(Row(number, entry, level, after))
    return found


def callers_text(lines: Mapping[str, int]) -> str:
    """The program's lines that came to a library's product, those with most calls first."""
    several = len(lines) > 1
    return ", ".join(f"{line} ({n})" if several else line for line, n in lines.items())


def levels(record: Record) -> dict[str, int]:
    """Level → its colour: 0 for native, then 1 to COLORS from most to least accurate.

    A level's accuracy is the median of its local errors over the operators.
    """
    used = {level for trial in record.trials for level in trial.plan.values()}
    used |= set(record.schemes.values()) | set(record.plan.values())
    used.discard("native")

    def error(level: str) -> float:
        known = [entry.local_errors.get(level) for entry in record.operators]
        return median([e for e in known if e is not None] or [inf])

    ordered = sorted(used, key=lambda level: (error(level), level))
    step = (COLORS - 1) / max(len(ordered) - 1, 1)
    return {"native": 0} | {level: 1 + round(at * step) for at, level in enumerate(ordered)}


def chosen(record: Record) -> TrialEntry | None:
    """The trial whose plan was written; None if no trial was kept in the record."""
    same = [trial for trial in record.trials if trial.plan == record.plan]
    return same[-1] if same else None


def time_unit(record: Record, times: Iterable[float | None] | None = None) -> Unit:
    """The common unit of these times; by default, of the times of the program."""
    if record.unit == "products":
        return PRODUCTS
    times = (record.gain.before, record.gain.after) if times is None else times
    return clock_unit(time or 0.0 for time in times)


def gain_text(gain: Gain, unit: Unit) -> str:
    """The program's time before and after, and how many times as fast that is.

    Slice products are no time, and fewer of them no speed.
    """
    before = unit.quantity(gain.before)
    if gain.verdict in (Pace.NOT_FASTER, Pace.UNCLEAR):
        return before + NO_GAIN
    if not gain.verdict:
        return before
    text = f"{unit.number(gain.before)} → {unit.quantity(gain.after)}"
    if gain.times is None:
        return text
    return f"{text} ({times_text(gain)} {'fewer' if unit is PRODUCTS else 'as fast'}{_ends(gain)})"


def times_text(gain: Gain) -> str:
    """The program's gain as a factor, in words."""
    return "unknown" if gain.times is None else f"{gain.times:.2f}×"


def _ends(gain: Gain) -> str:
    """The interval of a measured gain."""
    if gain.least is None or gain.most is None:
        return ""
    return f", {gain.least:.2f} to {gain.most:.2f}"


def gain_card(record: Record) -> tuple[str, str]:
    """The gain and a line about it, for the page."""
    gain = record.gain
    below = {
        "predicted": "fewer slice products" if record.unit == "products" else "as fast, predicted",
        "faster": f"as fast{_ends(gain)}, measured in turn",
        "not faster": "the plan is not faster",
        "cannot tell": "this machine did not tell",
        "": "not verified" if record.interrupted else "nothing was lowered",
    }[gain.verdict]
    if gain.verdict in (Pace.NOT_FASTER, Pace.UNCLEAR):
        return "No measurable gain", below
    return times_text(gain) if gain.verdict else "–", below


def reached(record: Record) -> float | None:
    """The error of the plan that was written, from a fresh process where it was verified."""
    if record.verification is not None and not record.interrupted:
        return record.verification.error
    return record.error


def verdict(record: Record, found: Sequence[Row]) -> str:
    """The outcome of the tuning in one or two sentences."""
    lowered = sum(row.level != row.entry.before for row in found)
    sentences = []
    if record.interrupted:
        sentences.append("Interrupted: this is the best plan so far, and it was not verified.")
    if record.reverted:
        return "A plan was found, but fresh processes show no gain: every product stays."
    start = record.trials[0].error if record.trials else record.error
    if start is None or (record.budget is not None and start > record.budget):
        sentences.append("Over the budget before anything is lowered.")
    if not found:
        sentences.append("The program calls no matrix product.")
    elif not lowered:
        sentences.append("Every product stays as it was.")
    else:
        sentences.append(f"{lowered} of {counted(len(found), 'product')} lowered.")
    if record.unclear:
        sentences.append("This machine did not tell whether a lower level is faster.")
    if record.unit == "products":
        sentences.append("Times are predicted: multiply-adds that INT8 tensor cores would make.")
    elif record.device:
        sentences.append(f"Times are predicted: those of the products on one {record.device}.")
    elif lowered and record.verification is not None and not record.interrupted:
        sentences.append(SAME_SETTINGS)
    return " ".join(sentences)


def size(record: Record, error: float | None) -> str:
    """An error as text, or the share of a budget that it is."""
    return error_text(error) if record.criterion else share_text(error)


def allowed(record: Record) -> str:
    """The limit that an error is compared with, as text."""
    if not record.criterion:
        return "of its budget"
    return f"of {'any' if record.budget is None else budget_text(record.budget)} allowed"


def error_name(record: Record) -> str:
    """The heading of a column with the errors of plans."""
    return "error" if record.criterion else "error / budget"


def trial_error(record: Record, trial: TrialEntry) -> str:
    if trial.error is not None:
        return size(record, trial.error)
    return "–" if trial.problem else "not finite"


def why(row: Row, found: Sequence[Row]) -> str:
    """Why an operator was lowered no further: the reason and its detail."""
    reason, detail = row.entry.reason, row.entry.detail
    if reason == Reason.RAISED:
        successor = next((other.number for other in found if other.entry.id == detail), None)
        return reason if successor is None else f"{reason}, number {successor}"
    return f"{reason}: {brief(detail)}" if detail else reason


def brief(problem: str) -> str:
    """A problem on one line: the last, which says most of a traceback."""
    lines = [line for line in problem.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def tuning_facts(record: Record) -> list[tuple[str, str]]:
    """Names and values of the known facts about how the tuning was made."""
    origin = record.provenance
    versions = ", ".join(f"{name} {version}" for name, version in origin.versions.items())
    threads = f"{origin.blas_threads} BLAS threads" if origin.blas_threads else ""
    machine = ", ".join(part for part in (origin.device, origin.backend, threads) if part)
    worst = record.verification.worst if record.verification and reached(record) else ""
    facts = [
        ("Machine", machine),
        ("Date", origin.date),
        ("Versions", versions),
        ("Command", origin.command),
        ("Plan file", record.plan_file),
        ("Error measure", record.criterion or ""),
        *(("Value", _value(entry)) for entry in record.values if not record.criterion),
        ("Value with the largest error", worst),
        ("Error on other inputs", other_inputs(record)),
    ]
    return [(name, value) for name, value in facts if value]


def other_inputs(record: Record) -> str:
    """The largest error on other inputs, and what it says of all; empty where there were none."""
    if record.hold_out is None:
        return ""
    error = size(record, record.hold_out)
    if record.hold_out_rate is None or len(record.hold_outs) < 2:
        return error
    return f"at most {error}; {rate_text(len(record.hold_outs), record.hold_out_rate)}"


def rate_text(inputs: int, rate: float) -> str:
    """The statement about all inputs that follows when none of some exceeds the budget."""
    return f"0 of {inputs} over: at most {share_text(rate)} of such inputs, with 95 % confidence"


def _value(entry: ValueEntry) -> str:
    budget = "any" if entry.budget is None else budget_text(entry.budget)
    return f"{entry.name}: {entry.criterion} error {error_text(entry.error)} of {budget} allowed"


def counted(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def visible(text: str) -> str:
    """A text whose invisible characters, and those that change its direction, are escaped."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text
    )
