"""How often the looks at pairs of times are wrong, on simulated clocks, by the rule of a tuning."""

from collections import Counter
from collections.abc import Callable
from math import exp
from random import Random
from typing import Any

import click

from mixpert_py.cli import main
from mixpert_py.tuner.ratio import LOOKS, Pace, Ratio, pairs_until_clear
from mixpert_py.tuner.records import StopReason
from mixpert_py.tuning.clock import PairedTimes
from tests.benchmarks import machine

RATIOS = (0.9, 0.95, 0.98, 1.0, 1.1)
VERDICTS = (Pace.FASTER, StopReason.NOT_FASTER, StopReason.UNCLEAR)
Clock = Callable[[Random], Callable[[float], float]]  # a trial's: what it shows for some seconds
Record = dict[str, Any]


def quiet(draw: Random) -> Callable[[float], float]:
    return lambda seconds: seconds * exp(draw.gauss(0, 0.01))


def lognormal(draw: Random) -> Callable[[float], float]:
    return lambda seconds: seconds * exp(draw.gauss(0, 0.05))


def heavy_tailed(draw: Random) -> Callable[[float], float]:
    """One time of seven is longer, most often by a half, seldom by ten times."""

    def show(seconds: float) -> float:
        late = abs(draw.gauss(0, 1)) if draw.random() < 1 / 7 else 0.0
        return seconds * exp(draw.gauss(0, 0.05) + late)

    return show


def busy(draw: Random) -> Callable[[float], float]:
    """Another program comes and goes, about every twentieth time, and the clock drifts."""
    load, drift, faster = 0.0, 0.0, draw.gauss(0, 0.003)

    def show(seconds: float) -> float:
        nonlocal load, drift
        drift += faster
        if draw.random() < 0.05:
            load = 0.0 if load else abs(draw.gauss(0, 0.7))
        return seconds * exp(load + drift + draw.gauss(0, 0.05))

    return show


CLOCKS: dict[str, Clock] = {
    "quiet, 1 %": quiet,
    "lognormal, 5 %": lognormal,
    "heavy-tailed": heavy_tailed,
    "busy and drifting": busy,
}


def trial(clock: Clock, ratio: float, draw: Random) -> tuple[str, int]:
    """The verdict on a product whose times have such a ratio, and how many pairs it took."""
    show = clock(draw)

    def pair(number: int) -> tuple[float, float]:
        if number % 2:
            new = show(ratio)
            return show(1.0), new
        return show(1.0), show(ratio)

    pairs = pairs_until_clear(pair)
    times = PairedTimes({"s": 1.0}, {"s": {"float32": Ratio.of(pairs)}})
    return times.excluded("s").get("float32", Pace.FASTER), len(pairs)


def simulate(trials: int) -> list[Record]:
    """The verdicts of each clock and ratio, in parts of all trials."""
    found = []
    for name, clock in CLOCKS.items():
        for ratio in RATIOS:
            draw = Random(f"{name} {ratio}")
            ended = [trial(clock, ratio, draw) for _ in range(trials)]
            verdicts = Counter(verdict for verdict, _ in ended)
            row = {str(verdict): verdicts[verdict] / trials for verdict in VERDICTS}
            pairs = sum(pairs for _, pairs in ended) / trials
            found.append({"clock": name, "ratio": ratio, **row, "pairs": pairs})
    return found


def markdown(result: Record) -> str:
    """A row for each clock, with the shares of the verdicts at each ratio."""
    rows = [
        [name]
        + [
            "/".join(f"{100 * row[verdict]:.1f}" for verdict in VERDICTS)
            for row in result["rows"]
            if row["clock"] == name
        ]
        for name in CLOCKS
    ]
    columns = ["times", *(f"{ratio:g}" for ratio in RATIOS)]
    looks = ", ".join(map(str, LOOKS))
    return (
        f"{machine.table(columns, rows)}\n\n{'/'.join(VERDICTS)}, in % of {result['trials']:,} "
        f"simulated products for each true ratio of the times; looks after {looks} pairs.\n"
    )


@click.command()
@click.option("--trials", type=click.IntRange(1), default=4000, show_default=True)
@machine.save_option
def command(trials: int, save: bool) -> None:
    """Shares of verdicts on simulated times, by the rule that a tuning uses."""
    result = {"trials": trials, "rows": simulate(trials)}
    machine.finish("looks", result, save, markdown)


if __name__ == "__main__":
    main(command, "python -m tests.benchmarks.looks")
