"""The command that measures a GPU: `mixpert probe`."""

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from mixpert_py.runtime.probes.gpu import Tables


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the device model here; default: where MixPert-Py finds it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def probe(output: Path | None, as_json: bool) -> None:
    """Measure how fast the GPU is.

    Clock, memory, and products by every scheme become a device model, in a minute or two.
    """
    from mixpert_py.runtime.probes import PROBES
    from mixpert_py.runtime.probes.gpu import Gpu

    gpu = Gpu.current()
    found = {}
    for name, made_by in PROBES.items():
        found[name] = made_by(gpu)
        for line in () if as_json else _lines(found[name]):
            click.echo(line)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    click.echo(f"device model written to {_written(found, output)}", err=as_json)


def _lines(tables: "Tables") -> Iterator[str]:
    """The figures of some tables, in the units of a device model."""
    for name, table in tables.items():
        if isinstance(table, list):
            yield f"{name}: {len(table)} rows"
        elif isinstance(table, dict):
            yield from (f"{name}.{key} = {value:.4g}" for key, value in table.items())
        else:
            yield f"{name} = {table}"


def _written(found: "dict[str, Tables]", output: Path | None) -> Path:
    from mixpert_py import files
    from mixpert_py.runtime.model import device_model
    from mixpert_py.runtime.probes import measured_model

    model = measured_model(found.values(), datetime.date.today())
    if output is None:
        return device_model.keep(model)
    files.replace(output, device_model.dumps(model).encode())
    return output
