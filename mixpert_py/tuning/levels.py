"""Which ladder a program is tuned on."""

from mixpert_py.errors import DeviceError
from mixpert_py.execution import gpus
from mixpert_py.runtime.in_force import emulates
from mixpert_py.runtime.schemes import ladder
from mixpert_py.tuner.records import Rung
from mixpert_py.tuning.wish import AUTO, Wish

HOSTS = (AUTO, "cpu")  # ladders that need no GPU


def require_place(wish: Wish) -> None:
    """Raise DeviceError where nothing could run under the ladder's schemes."""
    if wish.ladder not in HOSTS and wish.backend is None and gpus.usable(wish.backend) is None:
        raise DeviceError(
            f"--ladder {wish.ladder}: there is no GPU that could run it; --backend reference "
            "emulates one"
        )


def rungs(wish: Wish, on_gpu: bool) -> tuple[Rung, ...]:
    """The ladder of a wish. on_gpu: whether a GPU takes the program's products.

    Native float64 comes before schemes of float32's grade; for float32 products these are as good
    as native ones, and only faster.
    """
    automatic = "int8" if on_gpu or emulates(wish.backend) else "cpu"
    return ladder(automatic if wish.ladder == AUTO else wish.ladder)


def lowered(ladder: tuple[Rung, ...]) -> list[str]:
    """All schemes of a ladder but the native call."""
    return [name for rung in ladder for name in rung if name != "native"]
