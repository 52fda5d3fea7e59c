"""What the user of `mixpert tune` asked for."""

from dataclasses import dataclass

from mixpert_py.tuner.tune import DEFAULT
from mixpert_py.tuning.limits import Limits

AUTO = "auto"  # the ladder of the machine that runs, or is emulated


@dataclass(frozen=True, slots=True)
class Wish:
    """Limits, and all that has a default.

    reference: "float64" or "native"; search: one of `tuner.search.SEARCHES`; hold_out: other
    arguments, under which the plan is to be within hold_out_limits (None: the limits) too. ladder:
    of `runtime.schemes.LADDERS`, or "auto". workers: runs at a time; None: one for each GPU.
    device: the GPU that times are predicted for. dask: the address of a cluster that trials run on.
    """

    limits: Limits
    compare: tuple[str, ...] = ()
    backend: str | None = None
    time_limit: float | None = None
    search: str = DEFAULT
    command: str = ""
    hold_out: tuple[str, ...] | None = None
    hold_out_limits: Limits | None = None
    reference: str = "float64"
    ladder: str = AUTO
    workers: int | None = 1
    device: str | None = None
    dask: str | None = None
