"""The command that measures a GPU: `mixpert probe`."""

import datetime
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from mixpert_py.runtime.model.device_model import DeviceModel
    from mixpert_py.runtime.probes.gpu import Gpu, Tables


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
    from mixpert_py.runtime.probes.gpu import Gpu

    gpu = Gpu.current()
    found = {}
    for name, measure in probes().items():
        found[name] = measure(gpu)
        for line in () if as_json else _lines(found[name]):
            click.echo(line)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    click.echo(f"device model written to {_written(found, output)}", err=as_json)


def probes() -> "dict[str, Callable[[Gpu], Tables]]":
    """The functions that measure a GPU, in the order of their runs."""
    from mixpert_py.runtime.probes.gpu import memory, resources
    from mixpert_py.runtime.probes.products import products, transfer

    return {"resources": resources, "memory": memory, "transfer": transfer, "products": products}


def _lines(tables: "Tables") -> Iterator[str]:
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

    model = measured_model(found.values(), datetime.date.today())
    if output is None:
        return device_model.keep(model)
    files.replace(output, device_model.dumps(model).encode())
    return output


def measured_model(found: "Iterable[Tables]", today: datetime.date) -> "DeviceModel":
    """A measured model from what all probes found; how the device's instructions add up is taken
    from a known model of the same compute capability.

    Raises DeviceError where that does not make a whole model.
    """
    import msgspec

    from mixpert_py.errors import DeviceError
    from mixpert_py.runtime.model.device_model import FORMAT, DeviceModel, model_of

    tables: dict[str, Any] = {"format": FORMAT, "date": today, "origin": "measured"}
    for one in found:
        for key, value in one.items():
            old = tables.get(key)
            tables[key] = {**old, **value} if isinstance(old, dict) else value
    known = model_of(tables.get("device", ""))
    if known.capability == tables.get("capability"):
        tables["accumulation"] = msgspec.to_builtins(known.accumulation)
    try:
        return msgspec.convert(tables, DeviceModel)
    except msgspec.ValidationError as error:
        raise DeviceError(f"what was probed makes no device model: {error}") from None
