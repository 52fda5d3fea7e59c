"""Statistics of repeated runs of one plan: their median, and how far they lie apart."""

from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from statistics import median

from mixpert_py.tuner.records import Measurement

# A gain below this part of an operator's time does not count, however steady the clock.
SMALLEST_GAIN = 0.02

# The normal distribution's standard deviation is 1.4826 median absolute deviations.
DEVIATIONS = 3 * 1.4826


def middle(runs: Sequence[Measurement]) -> Measurement:
    """Repeated runs of one plan as one: medians of the times, the largest error.

    The first failed run stands for all, if there is one; a NaN is the largest error. A scheme is
    not taken if no run in which the site was called took it.
    """
    for run in runs:
        if run.problem is not None:
            return run
    taken = {site for run in runs for site in run.site_seconds.keys() - run.not_taken}
    return Measurement(
        seconds=median(run.seconds for run in runs),
        error=largest(run.error for run in runs),
        site_seconds={site: median(times) for site, times in _times(runs).items()},
        not_taken=frozenset().union(*(run.not_taken for run in runs)) - taken,
        outliers=largest_of_each(run.outliers for run in runs),
        errors=largest_of_each(run.errors for run in runs),
    )


def largest(errors: Iterable[float]) -> float:
    """The largest error; a NaN is larger than any other."""
    return max(errors, key=lambda error: (isnan(error), error))


def largest_of_each(runs: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The largest error, or share, of every name in several runs."""
    found: dict[str, float] = {}
    for errors in runs:
        for name, error in errors.items():
            found[name] = largest((error, found.get(name, 0.0)))
    return found


def time_noise(runs: Sequence[Measurement]) -> dict[str, float]:
    """Site → smallest gain that counts: three robust standard deviations, at least 2 %.

    Deviations from the median, so that one slow first run does not hide every gain.
    """
    noise = {}
    for site, times in _times(runs).items():
        centre = median(times)
        deviation = median(abs(time - centre) for time in times)
        noise[site] = max(DEVIATIONS * deviation, SMALLEST_GAIN * centre)
    return noise


def _times(runs: Sequence[Measurement]) -> dict[str, list[float]]:
    sites = {site: None for run in runs for site in run.site_seconds}
    return {site: [run.site_seconds.get(site, 0.0) for run in runs] for site in sites}
