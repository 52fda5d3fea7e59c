"""What the probes found, as a device model."""

import datetime
from collections.abc import Iterable
from typing import Any

import msgspec

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.model.device_model import DeviceModel
from mixpert_py.runtime.model.model_file import FORMAT, dumps, loads
from mixpert_py.runtime.probes.gpu import Found


def model(found: Iterable[Found], today: datetime.date) -> DeviceModel:
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
