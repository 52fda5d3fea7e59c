"""The result that `mixpert tune` prints: a headline, and a row for every operator."""

from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from mixpert_py.tuner.ratio import Pace
from mixpert_py.tuner.records import Outcome, Reason, Verdict
from mixpert_py.tuner.report.fitted import CALLERS, EXPRESSION, Column, fitted
from mixpert_py.tuner.report.record import Gain, searched_gain
from mixpert_py.tuner.report.summary import MEANING, NO_GAIN, brief, callers_text, gain_text
from mixpert_py.tuner.report.unit import (
    PRODUCTS,
    Unit,
    budget_text,
    clock_unit,
    error_text,
    share_text,
)


@dataclass(frozen=True, slots=True)
class Report:
    """Headline and table, for `rich`'s print; readable from 60 columns up and without colour.

    criterion: None where errors are shares of several budgets. predicted: whether times are
    predicted, in seconds of `device` or, without one, in slice products. gain: the headline's;
    None: what the search knows of it. An operator's part of the time is its part in the search,
    where both were timed together.
    """

    outcome: Outcome
    criterion: str | None = "frobenius"
    predicted: bool = False
    device: str = ""
    gain: Gain | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.headline()
        if self.outcome.verdicts:
            yield ""
            unit = self._unit(verdict.seconds_before for verdict in self.outcome.verdicts)
            yield _table(self.outcome, unit, options.max_width)
            yield ""
            for reason in dict.fromkeys(verdict.reason for verdict in self.outcome.verdicts):
                yield Text(f"{reason}: {MEANING[reason]}")

    def headline(self) -> Text:
        """Program time before → after, error against budget, and whether anything was lowered."""
        outcome, text = self.outcome, Text()
        gain = self.gain or searched_gain(outcome, self.predicted)
        if outcome.interrupted:
            text.append("Interrupted; the best plan so far. ")
        if not outcome.best.error <= outcome.budget:
            text.append("Over the budget before anything is lowered; every product stays. ")
        elif not outcome.lowered:
            text.append("Every product stays as it was. ")
        if gain.verdict in (Pace.NOT_FASTER, Pace.UNCLEAR):
            text.append("No measurable gain. ")
        place = f" for the products on {self.device}" if self.device else ""
        text.append(f"Predicted{place}: " if self.predicted else "Program: ")
        unit = self._unit(time for time in (gain.before, gain.after) if time is not None)
        text.append(gain_text(gain, unit).removesuffix(NO_GAIN), style="bold")
        if self.criterion is None:
            text.append(", errors at most ")
            text.append(share_text(outcome.best.error), style="bold")
            text.append(" of their budgets")
        else:
            text.append(f", {self.criterion} error ")
            text.append(error_text(outcome.best.error), style="bold")
            text.append(f" of {budget_text(outcome.budget)} allowed")
        plans = "1 plan" if len(outcome.trials) == 1 else f"{len(outcome.trials)} plans"
        text.append(f", {plans} tried.")
        return text

    def _unit(self, times: Iterable[float]) -> Unit:
        return PRODUCTS if self.predicted and not self.device else clock_unit(times)


def _table(outcome: Outcome, unit: Unit, width: int) -> Table:
    """The table of operators, longest first, in at most `width` characters.

    Where all operators start from the same level, the header names it, and a row only where its
    operator ended.
    """
    verdicts = outcome.verdicts
    lines = {verdict.operator.id: verdict.operator.place for verdict in verdicts}
    several = any(verdict.operator.path for verdict in verdicts)
    called = any(verdict.operator.callers for verdict in verdicts)
    starts = {verdict.before for verdict in verdicts}
    columns = (
        Column("site", drop=4),
        Column("line", right=not several),
        Column("expression", wraps=True, least=EXPRESSION),
        *[Column("called from", wraps=True, least=CALLERS)] * called,
        Column("% of\ntime", right=True, drop=3),
        Column(f"level\n{starts.pop()} →" if len(starts) == 1 else "level"),
        Column("error", right=True, drop=1),
        Column(unit.name if unit is PRODUCTS else f"time, {unit.name}", right=True, drop=2),
        Column("why it\nstopped", wraps=True),
    )
    rows = [
        (
            _function(verdict.operator.id),
            verdict.operator.place,
            verdict.operator.expression,
            *[callers_text(verdict.operator.callers)] * called,
            "–" if verdict.operator.elsewhere else f"{outcome.share(verdict):.0%}".rstrip("%"),
            _level(verdict, full=bool(starts)),
            error_text(verdict.local_error),
            _times(verdict, unit),
            _reason(verdict, lines),
        )
        for verdict in verdicts
    ]
    return fitted(columns, rows, width)


def _function(site: str) -> str:
    """The function of a site, by the site's id."""
    module, _, rest = site.partition(":")
    return rest.partition("/")[0] or module


def _level(verdict: Verdict, full: bool) -> str:
    if not full or verdict.before == verdict.after:
        return verdict.after
    return f"{verdict.before} → {verdict.after}"


def _times(verdict: Verdict, unit: Unit) -> str:
    if verdict.operator.elsewhere:
        return "–"
    before = unit.number(verdict.seconds_before)
    if verdict.before == verdict.after:
        return before
    return f"{before} → {unit.number(verdict.seconds_after)}"


def _reason(verdict: Verdict, lines: dict[str, str]) -> str:
    if verdict.reason is Reason.RAISED:
        return f"raised for line {lines[verdict.detail]}"
    return f"{verdict.reason}: {brief(verdict.detail)}" if verdict.detail else str(verdict.reason)
