"""A program whose operators' errors reach its result as independent rounding errors do."""

from collections.abc import Mapping
from math import sqrt

import numpy as np

from mixpert_py.tuner.records import Measurement, Operator

RUNGS = ("native", "x8", "x6", "x3", "x1")
LADDER = tuple((rung,) for rung in RUNGS)
SHARES = (1.0, 0.27, 0.2, 0.1, 0.033)  # of the native time, as rates have it
ERRORS = (0.0, 2e-9, 4.4e-7, 9.8e-5, 1.5e-2)


class PropagatedProgram:
    """Operators with times and sensitivities over several orders of magnitude.

    A clock that is off by `jitter`; `runs` counts. kind: how errors meet ("rss", "sum", "max").
    """

    def __init__(self, count: int, seed: int, kind: str = "rss", jitter: float = 0.1) -> None:
        draw = np.random.default_rng(seed)
        self.sites = [f"op{i}" for i in range(count)]
        seconds = np.exp(draw.normal(0, 1.2, count))
        scatter = np.exp(draw.normal(0, jitter, (count, len(RUNGS))))
        self.seconds = seconds[:, None] * np.array(SHARES) * scatter
        self.seconds[:, 0] = seconds
        local = np.array(ERRORS) * np.exp(draw.normal(0, 0.3, (count, len(RUNGS))))
        self.local = np.sort(local, axis=1)
        self.gains = np.exp(draw.normal(0, 2, count))
        self.kind, self.runs = kind, 0
        self.budget = float(np.median(self.gains) * 10 ** draw.uniform(-6.5, -2))

    def __call__(self, plan: Mapping[str, str], /) -> Measurement:
        self.runs += 1
        levels = [RUNGS.index(plan[site]) for site in self.sites]
        parts = [g * row[i] for g, row, i in zip(self.gains, self.local, levels, strict=True)]
        error = {
            "rss": sqrt(sum(part * part for part in parts)),
            "sum": sum(parts),
            "max": max(parts),
        }[self.kind]
        times = dict(
            zip(
                self.sites,
                (row[i] for row, i in zip(self.seconds, levels, strict=True)),
                strict=True,
            )
        )
        return Measurement(sum(times.values()), error + 1e-12, times)

    def operators(self) -> list[Operator]:
        return [
            Operator(
                site,
                seconds=times[0],
                local_errors=dict(zip(RUNGS[1:], errors[1:], strict=True)),
                predicted={
                    rung: times[0] * s for rung, s in zip(RUNGS[1:], SHARES[1:], strict=True)
                },
            )
            for site, times, errors in zip(
                self.sites, self.seconds.tolist(), self.local.tolist(), strict=True
            )
        ]
