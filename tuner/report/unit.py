"""Texts of times, in one unit for a whole report, of errors, and of a profile's measurements."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isclose, isfinite

ON_GPUS = ("int8", "crt", "fp16", "faithful", "mixpert")  # begin the names of their levels
LOSS_SHOWN_FROM = 2.0  # bits of int8 loss from which words point it out
# Bits of exponent spread from which words point it out: most entries of a row then keep some 30 of
# their 53 bits under crt14, and 4 of 24 under int8x6.
SPREAD_SHOWN_FROM = 20.0


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


def small_entries(bits: float | None) -> str:
    """Why errors of schemes with one scale a row do not show on these operands; "" where they do.

    bits: the exponent spread; about 43 where A = I + 1e-13 · N, of whose product with another such
    matrix crt14 loses the entries off the diagonal.
    """
    if bits is None or bits < SPREAD_SHOWN_FROM:
        return ""
    return (
        f"most entries of a row are some 2^{bits:.0f} times smaller than its largest; int8 schemes "
        "and crt7 … crt18 lose digits of such entries, which no error in the Frobenius norm shows"
    )


def bits_text(bits: float | None) -> str:
    """Bits with one decimal; a dash where no call was sampled."""
    return "–" if bits is None else f"{bits:.1f}"


def cancellation_text(ratio: float | None) -> str:
    """A ratio with three digits; a dash where no call was sampled."""
    return "–" if ratio is None else f"{ratio:.3g}×"


def are_for_gpus(levels: Iterable[str]) -> bool:
    """Whether any of these levels is one that only GPUs run, and emulations of them."""
    return any(level.startswith(ON_GPUS) for level in levels)
