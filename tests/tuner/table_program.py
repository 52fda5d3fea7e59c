"""A program that is two tables: the tuner's `measure` without a program."""

from collections.abc import Iterable, Mapping
from typing import Any

from mixpert_py.tuner.records import (
    Ladder,
    Measure,
    Measurement,
    Operator,
    Outcome,
    Rung,
    TuningProblem,
)
from mixpert_py.tuner.search import tune as of_problem
from samples.papers.search import KINDS

UNFIT = "too small"  # why no call took a scheme

Table = Mapping[str, Mapping[str, float]]


def tune(
    measure: Measure,
    operators: Iterable[Operator],
    edges: Iterable[tuple[str, str]],
    rungs: tuple[Rung, ...],
    budget: float,
    *,
    noise: float | Mapping[str, float],
    start: Mapping[str, str] | None = None,
    search: str = "predictive",
    **options: Any,
) -> Outcome:
    """The tuner on a problem of these parts; options: as for `tuner.search.tune`."""
    parts = tuple(operators), frozenset(edges), Ladder(rungs), budget, noise, start or {}
    return of_problem(measure, TuningProblem(*parts), search=KINDS[search], **options)


class TableProgram:
    """Site → scheme → seconds and error; the program's error is the sum. `plans` is what was run.

    failing: site → scheme under which the run fails; unfit: schemes that take no call of a site;
    overhead: the program's time outside.
    """

    def __init__(
        self,
        seconds: Table,
        errors: Table,
        failing: Mapping[str, str] | None = None,
        overhead: float = 0.0,
        unfit: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.seconds, self.errors = seconds, errors
        self.failing, self.overhead, self.unfit = failing or {}, overhead, unfit or {}
        self.plans: list[dict[str, str]] = []

    def __call__(self, plan: Mapping[str, str], /) -> Measurement:
        self.plans.append(dict(plan))
        for site, scheme in self.failing.items():
            if plan[site] == scheme:
                return Measurement(0.1, float("nan"), {}, problem="exit code 3")
        times = {site: table[plan[site]] for site, table in self.seconds.items()}
        error = sum(table.get(plan[site], 0.0) for site, table in self.errors.items())
        return Measurement(
            self.overhead + sum(times.values()),
            error,
            times,
            not_taken={s: UNFIT for s, schemes in self.unfit.items() if plan[s] in schemes},
        )

    def operators(self, *locked: str) -> list[Operator]:
        return [
            Operator(
                site,
                expression=f"{site} @ {site}",
                line=number,
                calls=1,
                seconds=next(iter(table.values())),
                local_errors=dict(self.errors.get(site, {})),
                locked=site in locked,
            )
            for number, (site, table) in enumerate(self.seconds.items(), 1)
        ]

    def steps(self) -> list[dict[str, str]]:
        """What each run changed from the first one."""
        first = self.plans[0]
        return [{s: p[s] for s in p if p[s] != first[s]} for p in self.plans]


class InterruptedProgram(TableProgram):
    """Raises KeyboardInterrupt instead of making run number `at` (0 is the first)."""

    at = 0

    def __call__(self, plan: Mapping[str, str], /) -> Measurement:
        if len(self.plans) == self.at:
            raise KeyboardInterrupt
        return super().__call__(plan)
