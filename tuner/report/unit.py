"""Texts of times, in one unit for a whole report, and of errors."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isclose, isfinite


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of time of a report; a second, or a slice product, is `per_second` of it.

    whole: whole counts are written without decimals.
    """

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
        if seconds is None:
            return "unknown"
        return f"{self.number(seconds)} {self.name}"


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
    if error is None:
        return "–"
    if not isfinite(error):
        return "not finite"
    return f"{error:.1e}" if error else "0"


def budget_text(budget: float) -> str:
    """A budget as it is typed: 1e-5, 2.5e-3, 1."""
    mantissa, _, power = f"{budget:e}".partition("e")
    return f"{float(mantissa):g}e{int(power)}" if int(power) else f"{budget:g}"


def share_text(share: float | None) -> str:
    """An error as a part, or a multiple, of a budget; a dash where it was not measured."""
    if share is None:
        return "–"
    if not isfinite(share):
        return "not finite"
    return f"{100 * share:.3g} %" if share < 10 else f"{share:.2g} times"
