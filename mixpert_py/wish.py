"""What the user of `mixpert tune` asked for."""

from dataclasses import dataclass

from mixpert_py.tuner.search import DEFAULT


@dataclass(frozen=True, slots=True)
class Wish:
    """A budget, and all that has a default.

    criterion: a metric's name or `module:function`; search: one of `tuner.search.SEARCHES`;
    hold_out: other arguments, under which the plan is to be within hold_out_budget (None: the
    budget) too.
    """

    budget: float
    criterion: str = "frobenius"
    compare: tuple[str, ...] = ()
    backend: str | None = None
    time_limit: float | None = None
    search: str = DEFAULT
    command: str = ""
    hold_out: tuple[str, ...] | None = None
    hold_out_budget: float | None = None
