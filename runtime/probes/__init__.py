"""Probes: programs that find out how a GPU works and how fast it is, in the order of their runs.

The device model is made from their findings.
"""

import datetime
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.model.device_model import FORMAT, DeviceModel, dumps, loads
from mixpert_py.runtime.probes import numerics, products, resources
from mixpert_py.runtime.probes.gpu import Found, Gpu

Probe = Callable[[Gpu], Found]

PROBES: Final[Mapping[str, Probe]] = {
    "resources": resources.resources,
    "memory": resources.memory,
    "transfer": products.transfer,
    "numerics": numerics.numerics,
    "products": products.products,
}


def measured_model(found: Iterable[Found], today: datetime.date) -> DeviceModel:
    """A measured model from what all probes found.

    Raises DeviceError where that does not make a whole model.
    """
    tables: dict[str, Any] = {"format": FORMAT, "date": today, "origin": "measured"}
    for one in found:
        for key, value in one.tables.items():
            old = tables.get(key)
            tables[key] = {**old, **value} if isinstance(old, dict) else value
    try:
        return loads(dumps(msgspec.convert(tables, DeviceModel)), "what was probed")
    except msgspec.ValidationError as error:
        raise DeviceError(f"what was probed makes no device model: {error}") from None
