"""A Dask cluster on this machine with a process for each of its GPUs."""

from collections.abc import Sequence
from typing import Any

from mixpert_py.errors import MixPertError

HOST = "127.0.0.1"  # who can connect to a worker can run code in it


def start(names: Sequence[str], *, port: int = 0, spills: bool = True) -> Any:
    """A cluster of one process, of one thread, for each GPU; a context, which ends it.

    names: what CUDA calls them, see `config.gpu_names`. dask-cuda's where that is installed: its
    workers know NVLink, and spill from the GPU's memory. Tasks stay where they are sent: a block
    costs more to move than a worker loses by waiting. spills: each has its share of the memory that
    the machine says it has now, and blocks beyond that go to disk. Raises MixPertError without
    Dask.
    """
    try:
        import dask
        from distributed import Nanny, Scheduler, SpecCluster
        from distributed.system import MEMORY_LIMIT
    except ImportError:
        raise MixPertError("a cluster needs Dask (pip install 'mixpert-py[dask]')") from None
    memory = MEMORY_LIMIT // len(names) if spills else 0  # which is none
    with dask.config.set({"distributed.scheduler.work-stealing": False}):
        try:
            from dask_cuda import LocalCUDACluster
        except ImportError:
            pass
        else:
            return LocalCUDACluster(
                CUDA_VISIBLE_DEVICES=",".join(names),
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
            for name in names
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
