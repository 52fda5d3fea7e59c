"""The command that starts a Dask cluster on the GPUs of this machine: `mixpert cluster`."""

import click

from mixpert_py.errors import DeviceError


@click.command()
@click.option("--port", default=8786, show_default=True, type=click.IntRange(0, 65535))
def cluster(port: int) -> None:
    """Start a Dask cluster, a process for each GPU, until Ctrl-C.

    A program's products of Dask arrays run on it once the program has made a
    distributed.Client of the address that is printed.
    """
    from threading import Event

    from mixpert_py.execution import gpus

    names = gpus.names(None)
    if not names:
        raise DeviceError("there is no usable GPU here; `mixpert doctor` says why")
    with gpus.start_cluster(names, port=port) as started:
        count = f"{len(names)} worker{'s' * (len(names) > 1)}, one for each GPU"
        click.echo(f"{started.scheduler_address}: {count}; Ctrl-C ends it")
        Event().wait()
