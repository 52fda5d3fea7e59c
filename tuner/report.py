"""A tuning as text: a headline, a table of its operators, a table of its plans, and their words.

All times of a text are in one unit. Tables fit a terminal by leaving columns out, not by cutting
what stands in them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isclose, isfinite

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mixpert_py.errors import counted
from mixpert_py.tuner.ratio import Pace
from mixpert_py.tuner.records import StopReason
from mixpert_py.tuner.tuning_record import Gain, OperatorEntry, TuningRecord, ValueEntry

NO_GAIN = ", no measurable gain"
# How times were compared: `python` itself lets OpenBLAS's idle threads spin for longer.
SAME_SETTINGS = (
    "Times are measured in fresh processes, native and planned in turn, with the same BLAS "
    "settings in both."
)
# A gain of a program that takes less seconds may be lost where `mixpert run` starts it.
SHORT_PROGRAM = 1.0
START_UP = "Not counted: `mixpert run` starts about 0.1 s later than Python."
# Bits of exponent spread from which words point it out: most entries of a row then keep some 30 of
# their 53 bits under crt14, and 4 of 24 under int8x6.
SPREAD_SHOWN_FROM = 20.0

# The meaning of a reason: for a trial, or for the level below the one that an operator has.
MEANING: Mapping[str, str] = {
    StopReason.KEPT: "Within the budget, and faster by the search's figures: the search continued "
    "from this plan.",
    StopReason.NOT_FASTER: "It saves no time, or less than the clock's noise.",
    StopReason.NOT_TAKEN: "No call of the product could use the level, so it ran as before.",
    StopReason.OVER_BUDGET: "In a run the program's error exceeded the budget, or its used part.",
    StopReason.HOLD_OUT: "The error exceeded the budget on the hold-out data only.",
    StopReason.FAILED: "The program failed under the level, or left nothing to compare.",
    StopReason.BOTTOM: "This is the least accurate level that is tried.",
    StopReason.LOCKED: "The plan, or a comment in the source, locks the level.",
    StopReason.NEVER_RAN: "The program did not call the product.",
    StopReason.ELSEWHERE: "Only processes that the program starts make the product, which are not "
    "measured.",
    StopReason.UNSUITED: "No lower level suits the product's operands.",
    StopReason.TOO_SHORT: "The product's time is below the clock's noise, so no gain could be "
    "seen.",
    StopReason.NEGLIGIBLE: "The product takes less than 1 % of the time of all products.",
    StopReason.UNCLEAR: "Timed alone, the level and the original took the same time within the "
    "noise, or there was no time to measure it. Try again on an idle machine.",
    StopReason.PREDICTED: "The program's predicted error exceeds the budget, so the level was not "
    "run.",
    StopReason.TOO_LITTLE: "The level would save less than 1 % of the program's time, or less than "
    "0.5 % of the products' time.",
    StopReason.RAISED: "The product was raised again so that a longer one could be lowered.",
    StopReason.START_OVER_BUDGET: "The program exceeded the budget before anything was lowered.",
    StopReason.INTERRUPTED: "The search was interrupted before it finished with the product.",
}


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of time, of which a second, or product, is `per_second`; `whole`: no decimals."""

    name: str
    per_second: float
    whole: bool = False

    def number(self, seconds: float | None) -> str:
        """The number without the unit: three digits, fewer where it is far below the unit."""
        if seconds is None or not isfinite(seconds):
            return "–"
        count = seconds * self.per_second
        if abs(count) >= 1e6:
            return f"{count:.2e}"
        if abs(count) >= 100 or (self.whole and isclose(count, round(count))):
            return f"{count:,.0f}"
        return f"{count:.3f}" if abs(count) < 1 else f"{count:#.3g}"

    def quantity(self, seconds: float | None) -> str:
        """The number with the unit; "unknown" for None."""
        return "unknown" if seconds is None else f"{self.number(seconds)} {self.name}"


PRODUCTS = Unit("products", 1.0, whole=True)
CLOCK = (Unit("s", 1.0), Unit("ms", 1e3), Unit("µs", 1e6))


def clock_unit(times: Iterable[float]) -> Unit:
    """The unit in which the longest of these times, in seconds, is at least 1."""
    longest = max((time for time in times if isfinite(time)), default=0.0)
    for unit in CLOCK:
        if longest * unit.per_second >= 1 or longest <= 0:
            return unit
    return CLOCK[-1]


def error_text(error: float | None) -> str:
    """An error with two digits; a dash where it was not measured."""
    if error is None or not isfinite(error):
        return "–" if error is None else "not finite"
    return f"{error:.1e}" if error else "0"


def budget_text(budget: float) -> str:
    """A budget as it is typed: 1e-5, 2.5e-3, 1."""
    mantissa, _, power = f"{budget:e}".partition("e")
    return f"{float(mantissa):g}e{int(power)}" if int(power) else f"{budget:g}"


def share_text(share: float | None) -> str:
    """An error as a part, or a multiple, of a budget; a dash where it was not measured."""
    if share is None or not isfinite(share):
        return "–" if share is None else "not finite"
    return f"{100 * share:.3g} %" if share < 10 else f"{share:.2g} times"


def small_entries(bits: float | None) -> str:
    """Why errors of schemes with one scale a row do not show on these operands; "" where they do.

    bits: the exponent spread; about 43 where A = I + 1e-13 · N, of whose product with another such
    matrix crt14 loses the entries off the diagonal.
    """
    if bits is None or bits < SPREAD_SHOWN_FROM:
        return ""
    return (
        f"most entries of a row are some 2^{bits:.0f} times smaller than its largest; int8 schemes "
        "and crt7 … crt16 lose digits of such entries, which no error in the Frobenius norm shows"
    )


def time_unit(record: TuningRecord, times: Iterable[float | None] | None = None) -> Unit:
    """The common unit of these times; by default, of the times of the program."""
    if record.unit == "products":
        return PRODUCTS
    times = (record.gain.before, record.gain.after) if times is None else times
    return clock_unit(time or 0.0 for time in times)


def gain_text(gain: Gain, unit: Unit) -> str:
    """The program's time before and after, and the gain: of products, fewer is no speed."""
    before = unit.quantity(gain.before)
    if gain.verdict in (Pace.NOT_FASTER, Pace.UNCLEAR):
        return before + NO_GAIN
    if not gain.verdict:
        return before
    text = f"{unit.number(gain.before)} → {unit.quantity(gain.after)}"
    if gain.times is None:
        return text
    known = gain.least is not None and gain.most is not None
    ends = f", {gain.least:.2f} to {gain.most:.2f}" if known else ""
    return f"{text} ({gain.times:.2f}× {'fewer' if unit is PRODUCTS else 'as fast'}{ends})"


def reached(record: TuningRecord) -> float | None:
    """The error of the plan that was written, from a fresh process where it was verified."""
    if record.verification is not None and not record.interrupted:
        return record.verification.error
    return record.error


def headline(record: TuningRecord) -> str:
    """Program time before → after, error against budget, and whether anything was lowered."""
    words = ["Interrupted; the best plan so far."] if record.interrupted else []
    error, budget, gain = record.error, record.budget, record.gain
    if budget is not None and (error is None or error > budget):
        words.append("Over the budget before anything is lowered; every product stays.")
    elif all(entry.before == entry.after for entry in record.operators):
        words.append("Every product stays as it was.")
    if gain.verdict in (Pace.NOT_FASTER, Pace.UNCLEAR):
        words.append("No measurable gain.")
    place = f" for the products on {record.device}" if record.device else ""
    program = f"Predicted{place}:" if record.predicted else "Program:"
    times = gain_text(gain, time_unit(record)).removesuffix(NO_GAIN)
    errors = f"errors at most {share_text(error)} of their budgets"
    if record.criterion:
        most = "any" if budget is None else budget_text(budget)
        errors = f"{record.criterion} error {size(record, error)} of {most} allowed"
    words.append(f"{program} {times}, {errors}, {counted(len(record.trials), 'plan')} tried.")
    return " ".join(words)


def verified(record: TuningRecord, runs: str = "fresh processes") -> str:
    """What the verification by such runs showed; empty where the headline says all."""
    found = record.verification
    if record.interrupted:
        return "Interrupted: the plan was not verified."
    if record.reverted:
        return f"In {runs} the plan that was found showed no gain."
    if found is None or all(entry.before == entry.after for entry in record.operators):
        return UNCLEAR if record.unclear else ""
    error = f"error {error_text(found.error)}"
    if not record.criterion:
        error = f"errors at most {share_text(found.error)} of their budgets"
    if record.hold_out is not None:
        count = len(record.hold_outs)
        where = "on the hold-out" if count == 1 else f"on {count} other inputs at most"
        error = f"{error}, {where} {size(record, record.hold_out)}"
        if count > 1 and record.hold_out_rate is not None:
            most = share_text(record.hold_out_rate)
            error += f" (0 of {count} over: at most {most} of such inputs, with 95 % confidence)"
    words = f"Verified in {runs}: {error}"
    if record.predicted:
        return f"{words}."
    unit = clock_unit((found.native_lowered or 0.0,))
    times = f"{unit.number(found.native_lowered)} → {unit.quantity(found.lowered)}"
    words = f"{words}, time in the lowered products {times}."
    if not record.unclear:
        return f"{words}{whole_program(record.gain, found.spread)}"
    shown = f"Pairs of runs show {share_text(found.least)} to {share_text(found.most)}"
    return (
        f"{words} {shown} of the native time there; `mixpert verify` makes more of them. {UNCLEAR}"
    )


UNCLEAR = (
    "Cannot tell on this machine now whether a lower level is faster: times differ by less than "
    "they vary. Tune while it is idle, with data for which the program takes longer, or for a GPU "
    "whose times are predicted (--device NAME)."
)


def whole_program(gain: Gain, spread: float | None) -> str:
    """A note where the whole program's time does not show the gain of its products; else empty."""
    if spread is None or (gain.before or 0.0) - (gain.after or 0.0) > spread:
        return ""
    vary = clock_unit((spread,)).quantity(spread)
    return (
        f" Whole runs vary by {vary}, more than the gain: it is measured in the lowered products."
    )


def size(record: TuningRecord, error: float | None) -> str:
    """An error as text, or the share of a budget that it is."""
    return error_text(error) if record.criterion else share_text(error)


def why(entry: OperatorEntry, places: Mapping[str, str]) -> str:
    """Why an operator was lowered no further: the reason and its detail. places: site → place."""
    if entry.reason == StopReason.RAISED:
        return f"raised for line {places[entry.detail]}" if entry.detail in places else entry.reason
    return f"{entry.reason}: {brief(entry.detail)}" if entry.detail else entry.reason


def brief(problem: str) -> str:
    """A problem on one line: the last, which says most of a traceback."""
    lines = [line for line in problem.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def value_line(entry: ValueEntry) -> str:
    budget = "any" if entry.budget is None else budget_text(entry.budget)
    return f"{entry.name}: {entry.criterion} error {error_text(entry.error)} of {budget} allowed"


GAP = 2  # characters between columns
LEAST = 12  # characters that a column of words keeps
EXPRESSION = 20  # that a column of expressions keeps


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading and how it gives way where a table is too wide.

    drop: 0 for a column that always stays; of the others the one with the largest number is left
    out first. wraps: whether its cells are words, which may take several lines of `least`
    characters.
    """

    name: str
    right: bool = False
    drop: int = 0
    wraps: bool = False
    least: int = LEAST


def fitted(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> Table:
    """A table of at most `width` characters a line; cells are never cut, but folded."""
    natural = [
        max(cell_len(line) for text in (column.name, *cells) for line in text.split("\n"))
        for column, *cells in zip(columns, *rows, strict=True)
    ]
    least = [min(c.least, n) if c.wraps else n for c, n in zip(columns, natural, strict=True)]
    shown = list(range(len(columns)))
    while (total := sum(least[at] + GAP for at in shown) - GAP) > width:
        droppable = [at for at in shown if columns[at].drop]
        if not droppable:
            break
        shown.remove(max(droppable, key=lambda at: columns[at].drop))
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    spare = width - total
    for at in shown:
        more = min(natural[at] - least[at], max(spare, 0))
        spare -= more
        table.add_column(
            columns[at].name,
            justify="right" if columns[at].right else "left",
            overflow="fold",
            width=least[at] + more if total <= width else None,
        )
    for row in rows:
        # Text, not str: brackets of an expression are not markup.
        table.add_row(*(Text(row[at]) for at in shown))
    return table


def summary(record: TuningRecord, width: int) -> Group:
    """Headline, operators and what their reasons mean; readable from 60 columns up."""
    parts: list[RenderableType] = [Text(headline(record))]
    if record.operators:
        reasons = dict.fromkeys(entry.reason for entry in record.operators)
        parts += ["", operators(record, width), ""]
        parts += [Text(f"{reason}: {MEANING[reason]}") for reason in reasons if reason in MEANING]
    return Group(*parts)


def operators(record: TuningRecord, width: int) -> Table:
    """The table of operators, longest first; its header names the level from which all start."""
    entries = record.operators
    unit = time_unit(record, [entry.time_before for entry in entries])
    places = {entry.id: entry.place for entry in entries}
    starts = {entry.before for entry in entries}
    columns = (
        Column("site", drop=4),
        Column("line", right=not any(entry.path for entry in entries)),
        Column("expression", wraps=True, least=EXPRESSION),
        Column("% of\ntime", right=True, drop=3),
        Column(f"level\n{min(starts)} →" if len(starts) == 1 else "level"),
        Column("error", right=True, drop=1),
        Column(unit.name if unit is PRODUCTS else f"time, {unit.name}", right=True, drop=2),
        Column("why it\nstopped", wraps=True),
    )
    rows = []
    for entry in entries:
        level, time = entry.after, unit.number(entry.time_before)
        share = f"{entry.share or 0.0:.0%}".rstrip("%")
        if entry.before != entry.after:
            level = level if len(starts) == 1 else f"{entry.before} → {entry.after}"
            time = f"{time} → {unit.number(entry.time_after)}"
        if entry.reason == StopReason.ELSEWHERE:
            share = time = "–"
        place = _function(entry.id), entry.place, entry.expression
        error = error_text(entry.local_error)
        rows.append((*place, share, level, error, time, why(entry, places)))
    return fitted(columns, rows, width)


def trials(record: TuningRecord, width: int) -> Table:
    """The table of the plans in the order in which they ran."""
    unit = time_unit(record)
    best = next((x for x in reversed(record.trials) if x.plan == record.plan), None)
    places = {entry.id: entry.place for entry in record.operators}
    columns = (
        Column("plan", right=True),
        Column("what changed, by line", wraps=True),
        Column(f"time, {unit.name}", right=True, drop=1),
        Column("error" if record.criterion else "error / budget", right=True),
        Column("what became of it", wraps=True, least=32),
    )
    rows = []
    for number, trial in enumerate(record.trials, 1):
        changes = (f"{places.get(site, '?')}: {level}" for site, level in trial.changed.items())
        result = trial.reason if number > 1 else "start"
        result += f": {brief(trial.problem)}" if trial.problem else ""
        time = unit.number(None if trial.problem else trial.time)
        error = "–" if trial.problem else "not finite"
        error = error if trial.error is None else size(record, trial.error)
        changed = ", ".join(changes) or "nothing"
        rows.append((str(number), changed, time, error, result + ", chosen" * (trial is best)))
    return fitted(columns, rows, width)


def _function(site: str) -> str:
    module, _, rest = site.partition(":")
    return rest.partition("/")[0] or module
