"""The options of a tuning, and the limits on the errors of observed values among them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isnan, nan
from typing import Any

import numpy.typing as npt

from mixpert_py.errors import MixPertError, ProgramError
from mixpert_py.tuner.tuning_record import LARGEST

Array = npt.NDArray[Any]

AUTO = "auto"  # the ladder of the machine that runs, or is emulated
FLOAT64, NATIVE = "float64", "native"  # the runs that errors may be measured against
DEFAULT_CRITERION = "frobenius"
MARGIN = 0.5  # the part of a budget that a tuning without hold-outs leaves for other data
UNTIL = 0.01  # of the time: a search ends where no run is predicted to gain as much
DIFFERING = "differing"  # the criterion of decisions
DECISIONS = "biu"  # kinds of dtype: truth values, labels, indices, counts


@dataclass(frozen=True, slots=True)
class Limit:
    """A budget, and the criterion that errors are measured by: its name or `module:function`.

    by_default: whether nobody chose the criterion for this value by name, so that a decision is
    measured by DIFFERING instead.
    """

    budget: float
    metric: str = DEFAULT_CRITERION
    by_default: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if not self.budget >= 0:
            raise MixPertError(f"a budget is a number of at least 0, not {self.budget}")

    def share(self, error: float) -> float:
        """The part of the budget that an error takes: at most 1 within it; NaN for NaN."""
        if error <= self.budget:
            return error / self.budget if 0 < self.budget < inf else 0.0
        return error / self.budget if self.budget else error * inf


UNCHANGED = Limit(0.0, DIFFERING)  # of a decision that has no budget of its own


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits by value.

    common: the limit of all values that are not in `named`; None: those are not judged. Where all
    values have the same limit, the number that a search goes by is the largest error, in the user's
    own unit. Else it is the largest share of a budget, and 1 is allowed. A decision that may not
    change at all fits in with any unit: its number is 0, or infinite.
    """

    common: Limit | None
    named: Mapping[str, Limit] = field(default_factory=dict)

    @property
    def only(self) -> Limit | None:
        """The limit of all values but unchanged decisions, where they have the same."""
        different = set(self._all()) - {UNCHANGED} or {UNCHANGED}
        return different.pop() if len(different) == 1 else None

    @property
    def budget(self) -> float:
        return self.only.budget if self.only else 1.0

    @property
    def metric(self) -> str | None:
        """The criterion behind that number; None where it is a share of budgets."""
        return self.only.metric if self.only else None

    @property
    def metrics(self) -> set[str]:
        return {limit.metric for limit in self._all()}

    @property
    def scale(self) -> float:
        """The number of a search for an error of 1 in the value with the smallest budget."""
        if self.only:
            return 1.0
        budgets = (limit.budget for limit in self._all() if 0 < limit.budget < inf)
        return 1 / min(budgets, default=1.0)

    def within(self, budget: float) -> "Limits":
        """The same limits with another budget of all values that have no limit of their own."""
        assert self.common is not None
        return replace(self, common=replace(self.common, budget=budget))

    def of(self, name: str) -> Limit:
        limit = self.named.get(name, self.common)
        assert limit is not None
        return limit

    def number(self, name: str, error: float) -> float:
        limit = self.of(name)
        return error if limit == self.only else limit.share(error)

    def worst(self, errors: Mapping[str, float]) -> tuple[float, str]:
        """The largest number of several values, and the name of its value; a NaN is the largest."""
        numbers = {name: self.number(name, error) for name, error in errors.items()}
        name = max(numbers, key=lambda name: (isnan(numbers[name]), numbers[name]))
        return numbers[name], name

    def with_decisions(self, values: Mapping[str, Array]) -> "Limits":
        """The limits with those of the decisions among a program's values.

        Integers and truth values are judged by the share that differs. It is 0 unless a budget is
        named for the value; a criterion that is named for it, or a user's own one, stays.
        """
        found = {}
        for name, value in values.items():
            limit = self.named.get(name)
            if value.dtype.kind not in DECISIONS:
                continue
            if limit is not None and limit.by_default:
                found[name] = replace(limit, metric=DIFFERING)
            elif limit is None and self.common and ":" not in self.common.metric:
                found[name] = UNCHANGED
        return replace(self, named={**self.named, **found})

    def decisions(self, values: Mapping[str, Array]) -> dict[str, Array]:
        return {name: x for name, x in values.items() if self.of(name).metric == DIFFERING}

    def judged(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """The values that have a limit. Raises ProgramError if a named one is missing."""
        missing = [name for name in self.named if name not in values]
        if values and missing:
            raise ProgramError(
                f"no value {missing[0]!r} to judge; the program shows {listed(values, 20)}"
            )
        return {name: x for name, x in values.items() if self.common or name in self.named}

    def _all(self) -> list[Limit]:
        return [*self.named.values(), *([self.common] if self.common else [])]


def listed(names: Iterable[str], most: int = 8) -> str:
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def limits_from(budgets: Mapping[str | None, float], metrics: Mapping[str | None, str]) -> Limits:
    """Limits by value; None: of all others. Raises MixPertError for a criterion without budget."""
    other, metric = budgets.get(None), metrics.get(None, DEFAULT_CRITERION)
    named = {}
    for name in dict.fromkeys((*budgets, *metrics)):
        if name is None:
            continue
        budget = budgets.get(name, other)
        if budget is None:
            raise MixPertError(f"{name!r} has a criterion and no budget (--error {name}=BUDGET)")
        by_default = name not in metrics and ":" not in metric
        named[name] = Limit(budget, metrics.get(name, metric), by_default)
    return Limits(None if other is None else Limit(other, metric), named)


def parse_named(option: str, texts: Sequence[str]) -> dict[str | None, str]:
    """`NAME=VALUE` by name, `VALUE` by None. Raises MixPertError if one is empty or repeated."""
    found: dict[str | None, str] = {}
    for text in texts:
        before, equals, value = text.rpartition("=")
        name = before if equals else None
        if not value or name == "":
            raise MixPertError(f"{option} {text}: it takes VALUE, or NAME=VALUE")
        if name in found:
            raise MixPertError(f"{option} {text}: {name or 'a value for all'!r} stands twice")
        found[name] = value
    return found


def parse_budgets(option: str, texts: Sequence[str]) -> dict[str | None, float]:
    """Budgets by name, as `parse_named` reads them; raises as it and `budget_of` do."""
    return {name: budget_of(option, text) for name, text in parse_named(option, texts).items()}


def budget_of(option: str, text: str) -> float:
    """The budget that a text is. Raises MixPertError where it is no number from 0 to LARGEST."""
    try:
        budget = float(text)
    except ValueError:
        budget = nan
    if not 0 <= budget <= LARGEST:
        raise MixPertError(f"{option} is a number from 0 to {LARGEST:g}, not {text}")
    return budget


@dataclass(frozen=True, slots=True)
class TuningOptions:
    """The options of `mixpert tune` or `mixpert verify`, in checked form.

    compare: variables, files, `stdout` and `sinks` that are compared; none: the default ones.
    time_limit: seconds that a run may take; None: a multiple of the native runs. reference:
    FLOAT64 or NATIVE. hold_outs: other arguments, under each of which the plan must be within
    `limits` too. packages: those whose modules are rewritten as well.

    Of `mixpert tune` alone: search: one of `tuner.searches.SEARCHES`. command: as it was typed.
    ladder: one of `runtime.schemes.LADDERS`, or AUTO. device: the GPU for which times are
    predicted. until: the part of the time below which what is left to gain ends the search.
    margin: the part of the budget that the search leaves for other data. stricter: budgets for
    which a plan is searched as well, from that of `limits` down.
    """

    limits: Limits
    compare: tuple[str, ...] = ()
    backend: str | None = None
    time_limit: float | None = None
    search: str = "predictive"
    command: str = ""
    hold_outs: tuple[tuple[str, ...], ...] = ()
    reference: str = FLOAT64
    ladder: str = AUTO
    device: str | None = None
    until: float = 0.0
    stricter: tuple[float, ...] = ()
    packages: tuple[str, ...] = ()
    margin: float = 0.0
