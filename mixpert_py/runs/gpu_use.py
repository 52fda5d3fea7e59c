"""Whether a program's products would run on a GPU of this machine, and which GPUs there are."""

from collections.abc import Iterator

import numpy as np

from mixpert_py import config
from mixpert_py.runs.worker import Result, SiteResult
from mixpert_py.runtime.call import PRECISION
from mixpert_py.runtime.cuda import break_even, device
from mixpert_py.runtime.in_force import emulates

SCHEME = "int8x6"  # stands for all that are tuned towards
WARMED = 4  # shapes of a call site


def found(backend: str | None) -> device.Device | None:
    """The GPU that runs of this backend may use."""
    if emulates(backend) or not device.may_be_here():
        return None
    here = device.find()
    return None if isinstance(here, device.Absent) else here


def names(backend: str | None) -> tuple[str, ...]:
    """What CUDA calls the GPUs that runs of this backend may use."""
    return config.gpu_names(device.count()) if found(backend) else ()


def takes(result: Result, gpu: device.Device, backend: str | None) -> bool:
    """Whether products of a native run would run there: arrays that are, or that moving pays."""
    if backend == "cuda" or result.on_gpu:
        return True
    figures = break_even.figures(gpu.name)
    for site in result.sites.values():
        for m, k, n, dtype in _products(site):
            # Takes no memory; only sizes are asked for.
            a, b = (np.broadcast_to(np.zeros((), dtype), shape) for shape in ((m, k), (k, n)))
            if break_even.moving_saves(a, b, (m, k, n), SCHEME, figures):
                return True
    return False


def products(site: SiteResult) -> list[tuple[int, int, int, str]]:
    """(m, k, n, dtype) of the calls that are made before a clock runs: those most often made."""
    return list(_products(site))[:WARMED]


def _products(site: SiteResult) -> Iterator[tuple[int, int, int, str]]:
    dtypes = [dtype for dtype in site.dtypes if dtype in PRECISION]
    return ((m, k, n, dtype) for m, k, n, _ in site.shapes for dtype in dtypes if m * k * n)
