"""A Dask cluster on this machine with a process for each of its GPUs."""

from collections.abc import Sequence
from typing import Any

import click

from mixpert_py.errors import DeviceError, MixPertError

HOST = "127.0.0.1"  # who can connect to a worker can run code in it


def start(names: Sequence[str], *, port: int = 0) -> Any:
    """A cluster of one process, of one thread, for each GPU; a context, which ends it.

    names: what CUDA calls them, see `config.gpu_names`. dask-cuda's where that is installed: its
    workers know NVLink, and spill from the GPU's memory. Tasks stay where they are sent: a block
    costs more to move than a worker loses by waiting. Raises MixPertError without Dask.
    """
    try:
        import dask
        from distributed import Nanny, Scheduler, SpecCluster
        from distributed.system import MEMORY_LIMIT
    except ImportError:
        raise MixPertError("a cluster needs Dask (pip install 'mixpert-py[dask]')") from None
    memory = MEMORY_LIMIT // len(names)
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


@click.command()
@click.option("--port", default=8786, show_default=True, type=click.IntRange(0, 65535))
def cluster(port: int) -> None:
    """Start a Dask cluster with a process for each GPU of this machine, until Ctrl-C.

    A program's products of Dask arrays run on it once the program has made a
    distributed.Client of the address that is printed.
    """
    from threading import Event

    from mixpert_py import gpu_use

    names = gpu_use.names(None)
    if not names:
        raise DeviceError("there is no usable GPU here; `mixpert doctor` says why")
    with start(names, port=port) as started:
        count = f"{len(names)} worker{'s' * (len(names) > 1)}, one for each GPU"
        click.echo(f"{started.scheduler_address}: {count}; Ctrl-C ends it")
        Event().wait()
