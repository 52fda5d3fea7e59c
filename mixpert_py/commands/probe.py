"""The command that measures a GPU: `mixpert probe`."""

import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from mixpert_py.runtime.probes.gpu import Found

# runtime.probes.registry has them, and imports NumPy.
NAMES = ("resources", "memory", "transfer", "instructions", "numerics", "products")


@click.command()
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(NAMES),
    metavar="NAME",
    help=f"Run this probe only, and write no model; one of {', '.join(NAMES)}.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the device model here; default: where MixPert-Py finds it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def probe(only: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """Measure the GPU: how fast it is, and what it computes.

    Clock, memory, instructions and their numerics become a device model, in a minute or two.
    """
    if only and output is not None:
        raise click.UsageError("--output takes a whole model, which --only does not make")
    from mixpert_py.runtime.probes.gpu import Gpu
    from mixpert_py.runtime.probes.registry import PROBES

    gpu = Gpu.current()
    found = {}
    for name in only or NAMES:
        found[name] = PROBES[name](gpu)
        if not as_json:
            click.echo(f"{name}\n\n{found[name].text}\n")
    if as_json:
        click.echo(json.dumps({name: one.tables for name, one in found.items()}, indent=2))
    if not only:
        click.echo(f"device model written to {_written(found, output)}", err=as_json)


def _written(found: "dict[str, Found]", output: Path | None) -> Path:
    from mixpert_py import files
    from mixpert_py.runtime.model import device_model, known_devices
    from mixpert_py.runtime.probes.registry import measured_model

    model = measured_model(found.values(), datetime.date.today())
    if output is None:
        return known_devices.keep(model)
    files.replace(output, device_model.dumps(model).encode())
    return output
