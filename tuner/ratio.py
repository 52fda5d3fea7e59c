"""The ratio of two times measured in turn, and whether it shows which one is shorter."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp, log, sqrt
from statistics import fmean, stdev

# A gain below this part of a time does not count, however steady the clock.
SMALLEST_GAIN = 0.02

# Numbers of pairs at which somebody may look whether they show enough, and stop. An error rate of
# 5 % is spent on all looks together (Lan & DeMets 1983), a fifth at each: by Boole's inequality,
# intervals of 99 % hold at all five looks in 95 % of all cases (repeated confidence intervals,
# Jennison & Turnbull 1989).
LOOKS = (3, 6, 12, 24, 48)

# Student's t for a two-sided interval of 99 %, by degrees of freedom from 1 to those of 48 pairs.
STUDENT = (
    *(63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055),
    *(3.012, 2.977, 2.947, 2.921, 2.898, 2.878, 2.861, 2.845, 2.831, 2.819, 2.807),
)

# The same of whole runs, which take longer: there are two looks at these. The first, at three
# pairs, spends 0.5 % of the error rate, and the last one the other 4.5 %, after the spending that
# O'Brien and Fleming (1979) propose: few runs then tell almost as much as with one look.
OF_RUNS = (127.321, 14.089, 3.322, 2.880, 2.658)

TRIMMED_FROM = 8  # pairs: of fewer, too few would be left
LARGEST = 700.0  # the logarithm of a number that floats hold; JSON has no infinity


class Pace(StrEnum):
    """The verdict of a ratio: the new time is shorter, it is not, or the pairs do not show it."""

    FASTER = "faster"
    NOT_FASTER = "not faster"
    UNCLEAR = "cannot tell"


@dataclass(frozen=True, slots=True)
class Ratio:
    """The new time over the old one: the trimmed geometric mean of pairs, and its interval.

    The interval holds in 95 % of all cases, at whichever look the pairs end.

    Both times of a pair are measured one right after the other, so that a machine that is busy for
    a while disturbs both. Of the logarithms, a quarter at either end is left out, from eight pairs
    on, and the interval is that of Tukey and McLaughlin (1963): Student's, with the winsorised
    variance. So a few pairs in which only one time was disturbed hardly count.
    """

    mean: float = 1.0
    least: float = 0.0
    most: float = exp(LARGEST)
    freedom: int = len(STUDENT)  # degrees of freedom of the interval, from 1 to so many

    @classmethod
    def of(
        cls, pairs: Sequence[tuple[float, float]], student: Sequence[float] = STUDENT
    ) -> "Ratio":
        """The ratio of pairs (old, new) of times. student: STUDENT, or OF_RUNS."""
        logarithms = sorted(log(new / old) for old, new in pairs if old > 0 and new > 0)
        count = len(logarithms)
        if not count:
            return cls()
        cut = count // 4 if count >= TRIMMED_FROM else 0
        inner = logarithms[cut : count - cut]
        mean = fmean(inner)
        if len(inner) == 1:
            return cls(exp(mean))
        winsorised = [inner[0]] * cut + inner + [inner[-1]] * cut
        freedom = min(len(inner) - 1, len(student))
        half = student[freedom - 1] * stdev(winsorised) * sqrt(count) / len(inner)
        return cls(exp(mean), exp(mean - half), exp(min(mean + half, LARGEST)), freedom)

    def pooled(self, other: "Ratio") -> "Ratio":
        """The mean of two measurements of one ratio, each weighted by its precision, in logarithms.

        It is this one where the intervals have no value in common, since the other is then of
        something else.
        """
        if self.least > other.most or self.most < other.least:
            return self
        widths = [max(x.half_width, 1e-9) for x in (self, other)]
        weights = [1 / width**2 for width in widths]
        logs = [log(x.mean) for x in (self, other)]
        mean = sum(w * x for w, x in zip(weights, logs, strict=True)) / sum(weights)
        half = 1 / sqrt(sum(weights))
        return Ratio(exp(mean), exp(mean - half), exp(min(mean + half, LARGEST)))

    def of_part(self, part: float) -> "Ratio":
        """The ratio of a whole of which a part, at most 1, has this one; the rest is unchanged."""
        mean, least, most = (1 - part + part * x for x in (self.mean, self.least, self.most))
        return Ratio(mean, least, most, self.freedom)

    @property
    def half_width(self) -> float:
        """Half of the interval's width in logarithms; of the longer side, where both differ."""
        below = log(self.mean / self.least) if self.least > 0 else LARGEST
        return max(below, log(self.most / self.mean))

    @property
    def pace(self) -> Pace:
        """Whether the new time is shorter by at least SMALLEST_GAIN."""
        if self.most <= 1 - SMALLEST_GAIN:
            return Pace.FASTER
        return Pace.NOT_FASTER if self.least >= 1 - SMALLEST_GAIN else Pace.UNCLEAR


def pairs_until_clear(
    pair: Callable[[int], tuple[float, float]], may_go_on: Callable[[], bool] = lambda: True
) -> list[tuple[float, float]]:
    """Pairs (old, new) of times, as many as a look needs to tell which is shorter.

    pair: measures the pair of a number, from 0. may_go_on: whether another one may begin; those
    before the first look always may.
    """
    found: list[tuple[float, float]] = []
    while len(found) < LOOKS[0] or (len(found) < LOOKS[-1] and may_go_on()):
        found.append(pair(len(found)))
        if len(found) in LOOKS and Ratio.of(found).pace is not Pace.UNCLEAR:
            break
    return found
