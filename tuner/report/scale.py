"""The frame of a picture, and logarithmic axes: the places of values on them, and their ticks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, isfinite, log10
from typing import ClassVar, Self

MARGIN = 0.06  # part of the axis that is free at each end
LEAST = 0.15  # decades that are free at each end at least
MAX_TICKS = 8
MAX_POWER = 300  # beyond it a margin would leave what a float can hold


class Frame:
    """The measures of a picture, in pixels from the left and the top."""

    __slots__ = ()
    WIDTH: ClassVar[int] = 640
    HEIGHT: ClassVar[int] = 384
    LEFT: ClassVar[int] = 68
    RIGHT: ClassVar[int] = 624
    TOP: ClassVar[int] = 44
    BOTTOM: ClassVar[int] = 326
    GUTTER: ClassVar[float] = 24.0  # beyond an axis, for 0 and for what is not finite
    # Of a character of a text, about, at the larger size that texts have on a narrow page.
    LETTER: ClassVar[float] = 10.5
    LINE: ClassVar[float] = 20.0


@dataclass(frozen=True, slots=True)
class LogScale:
    """Decades `low` to `high`, drawn from pixel `start` to pixel `stop`."""

    low: float
    high: float
    start: float
    stop: float

    @classmethod
    def of(cls, values: Iterable[float], start: float, stop: float) -> Self:
        """An axis that holds every positive finite value; one decade around 1 if there is none."""
        logs = [log10(value) for value in values if isfinite(value) and value > 0] or [0.0]
        low, high = min(logs), max(logs)
        margin = max(MARGIN * (high - low), LEAST)
        return cls(low - margin, high + margin, start, stop)

    def __call__(self, value: float) -> float:
        """The pixel of a positive value."""
        part = (log10(value) - self.low) / (self.high - self.low)
        return self.start + part * (self.stop - self.start)

    def ticks(self) -> list[float]:
        """Powers of ten; where fewer than two are on the axis, multiples of them."""
        powers = range(max(ceil(self.low), -MAX_POWER), min(floor(self.high), MAX_POWER) + 1)
        if len(powers) >= 2:
            return [10.0**power for power in powers[:: ceil(len(powers) / MAX_TICKS)]]
        around = range(floor(self.low), ceil(self.high))
        for digits in ((1, 2, 5), (1, 1.5, 2, 3, 4, 6, 8)):
            ticks = [digit * 10.0**power for power in around for digit in digits]
            seen = [tick for tick in ticks if self.low <= log10(tick) <= self.high]
            if len(seen) >= 3:
                break
        return seen


def apart(ticks: Sequence[tuple[float, str]], letter: float) -> list[tuple[float, str]]:
    """The ticks of an axis across; those whose text would touch the one before it have none.

    letter: the width of a character, about.
    """
    found: list[tuple[float, str]] = []
    end = -inf
    for x, text in ticks:
        half = letter * len(text) / 2
        if x - half > end:
            found.append((x, text))
            end = x + half + letter
        else:
            found.append((x, ""))
    return found


def tick_text(value: float) -> str:
    """A tick as a short text: 1e-5, 0.2, 500."""
    if 1e-3 <= value < 1e6:
        return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
    mantissa, _, power = f"{value:e}".partition("e")
    return f"{float(mantissa):g}e{int(power)}"
