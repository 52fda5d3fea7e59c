"""The GPUs of this machine: their names, and whether a program would use one."""

from collections.abc import Iterator

import numpy as np

from mixpert_py import config
from mixpert_py.execution.worker import Result, SiteResult
from mixpert_py.runtime import worth
from mixpert_py.runtime.arrays import PRECISION
from mixpert_py.runtime.context import emulates
from mixpert_py.runtime.gpu import device

SCHEME = "int8x6"  # represents the schemes that products on a GPU are tuned towards
WARMED_SHAPES = 4  # of a call site


def usable(backend: str | None) -> device.Device | None:
    """The GPU that runs with this backend may use."""
    if emulates(backend) or not device.may_be_here():
        return None
    here = device.find()
    return None if isinstance(here, device.Absent) else here


def names(backend: str | None) -> tuple[str, ...]:
    """The names, as CUDA_VISIBLE_DEVICES has them, of the GPUs that runs may use."""
    return config.gpu_names(device.count()) if usable(backend) else ()


def would_run(result: Result, gpu: device.Device, backend: str | None) -> bool:
    """Whether products of a native run would run on the GPU: its arrays are there, or are moved."""
    if backend == "cuda" or result.on_gpu:
        return True
    figures = worth.figures(gpu.name)
    for site in result.sites.values():
        for m, k, n, dtype in _products(site):
            # These operands take no memory; only their sizes matter.
            a, b = (np.broadcast_to(np.zeros((), dtype), shape) for shape in ((m, k), (k, n)))
            if worth.moving_saves(a, b, (m, k, n), SCHEME, figures):
                return True
    return False


def warm_up_products(site: SiteResult) -> list[tuple[int, int, int, str]]:
    """(m, k, n, dtype) of a site's most frequent calls, made before a program's clock runs."""
    return list(_products(site))[:WARMED_SHAPES]


def _products(site: SiteResult) -> Iterator[tuple[int, int, int, str]]:
    dtypes = [dtype for dtype in site.dtypes if dtype in PRECISION]
    return ((m, k, n, dtype) for m, k, n, _ in site.shapes for dtype in dtypes if m * k * n)
