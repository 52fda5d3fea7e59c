"""The GPUs of this machine: their names, whether a program would use one, a cluster of them."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mixpert_py import config
from mixpert_py.errors import MixPertError
from mixpert_py.execution.worker import Result, SiteResult
from mixpert_py.runtime.context import emulates
from mixpert_py.runtime.dtypes import PRECISION
from mixpert_py.runtime.gpu import break_even, device

SCHEME = "int8x6"  # represents the schemes that products on a GPU are tuned towards
WARMED_SHAPES = 4  # of a call site
HOST = "127.0.0.1"  # who can connect to a worker can run code in it


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
    figures = break_even.figures(gpu.name)
    for site in result.sites.values():
        for m, k, n, dtype in _products(site):
            # These operands take no memory; only their sizes matter.
            a, b = (np.broadcast_to(np.zeros((), dtype), shape) for shape in ((m, k), (k, n)))
            if break_even.moving_saves(a, b, (m, k, n), SCHEME, figures):
                return True
    return False


def warm_up_products(site: SiteResult) -> list[tuple[int, int, int, str]]:
    """(m, k, n, dtype) of a site's most frequent calls, made before a program's clock runs."""
    return list(_products(site))[:WARMED_SHAPES]


def _products(site: SiteResult) -> Iterator[tuple[int, int, int, str]]:
    dtypes = [dtype for dtype in site.dtypes if dtype in PRECISION]
    return ((m, k, n, dtype) for m, k, n, _ in site.shapes for dtype in dtypes if m * k * n)


def start_cluster(gpus: Sequence[str], *, port: int = 0, spills: bool = True) -> Any:
    """A Dask cluster with a process of one thread for each GPU, as a context that ends it.

    gpus: see `names`. The cluster is dask-cuda's where that is installed: its workers know NVLink,
    and spill from the GPU's memory. Tasks stay where they are sent: a block costs more to move than
    a worker loses by waiting. spills: whether blocks go to disk that exceed a worker's share of the
    memory which the machine has now. Raises MixPertError without Dask.
    """
    try:
        import dask
        from distributed import Nanny, Scheduler, SpecCluster
        from distributed.system import MEMORY_LIMIT
    except ImportError:
        raise MixPertError("a cluster needs Dask (pip install 'mixpert-py[dask]')") from None
    memory = MEMORY_LIMIT // len(gpus) if spills else 0  # which is none
    with dask.config.set({"distributed.scheduler.work-stealing": False}):
        try:
            from dask_cuda import LocalCUDACluster
        except ImportError:
            pass
        else:
            return LocalCUDACluster(
                CUDA_VISIBLE_DEVICES=",".join(gpus),
                memory_limit=memory,
                scheduler_port=port,
                dashboard_address=None,
            )
        workers = {
            name: {
                "cls": Nanny,
                "options": {
                    "host": HOST,
                    "dashboard_address": f"{HOST}:0",
                    "nthreads": 1,
                    "memory_limit": memory,
                    "env": {"CUDA_VISIBLE_DEVICES": name},
                },
            }
            for name in gpus
        }
        options = {
            "host": HOST,
            "port": port,
            "dashboard": False,
            "dashboard_address": f"{HOST}:0",
        }
        return SpecCluster(
            workers=workers, scheduler={"cls": Scheduler, "options": options}, name="mixpert"
        )
