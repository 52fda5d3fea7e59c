"""Device model files: TOML that `mixpert probe` writes, read strictly."""

import datetime
import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import msgspec

from mixpert_py.errors import DeviceError, one_line
from mixpert_py.runtime.model.device_model import DeviceModel
from mixpert_py.toml_lines import MAX_BYTES, decoded, explained, line_of, shown
from mixpert_py.toml_lines import tables as tables_of

FORMAT = 1
UNEXPLAINED = ("accumulation",)  # may lack something: a probe may find no explanation
SHIPPED = files("mixpert_py.runtime.model") / "devices"


def loads(text: str, name: str = "device model") -> DeviceModel:
    """Parse a device model; `name` stands for it in errors.

    Raises DeviceError, in one line that names the key and its line, where it is malformed, where a
    measured one lacks a figure, or a published figure its source.
    """
    try:
        tables = tables_of(text)
    except ValueError as error:
        raise DeviceError(f"{name}: {error}") from None
    if tables.get("format", FORMAT) != FORMAT:
        what = f"{one_line(tables['format'])}; this version reads {FORMAT}"
        raise _refused(text, name, ["format"], what)
    try:
        model = msgspec.convert(tables, DeviceModel)
    except msgspec.ValidationError as error:
        raise _refused(text, name, *explained(str(error), tables)) from None
    for keys, figure in _figures(model):
        if model.origin == "measured" and figure is None and keys[0] not in UNEXPLAINED:
            raise _refused(text, name, keys, "missing from a measured model")
        if model.origin == "published" and figure is not None and not _source(model, keys):
            raise _refused(text, name, keys, "published without a source")
    return model


def load(path: str | Traversable) -> DeviceModel:
    """Read a device model. Raises DeviceError if it cannot be read or is malformed."""
    file = Path(path) if isinstance(path, str) else path
    try:
        with file.open("rb") as opened:
            text = decoded(opened.read(MAX_BYTES + 1))
    except OSError as error:
        raise DeviceError(f"{path}: cannot read the device model: {error.strerror}") from None
    except ValueError as error:
        raise DeviceError(f"{path}: {error}") from None
    return loads(text, str(path))


def dumps(model: DeviceModel) -> str:
    """The model as TOML, figures to four digits. `loads` reads it."""
    tables = msgspec.to_builtins(model, builtin_types=[datetime.date])
    return "\n".join(_table(tables, "")).lstrip() + "\n"


def _table(table: dict[str, Any], path: str) -> Iterator[str]:
    """Its own lines, then those of the tables in it."""
    inner = {key: value for key, value in table.items() if isinstance(value, dict | list)}
    for key, value in table.items():
        if key not in inner:
            yield _line(key, value)
    for key, value in inner.items():
        here = f"{path}.{key}" if path else key
        for row in value if isinstance(value, list) else [value]:
            yield f"\n[[{here}]]" if isinstance(value, list) else f"\n[{here}]"
            yield from _table(row, here)


def _line(key: str, value: Any) -> str:
    bare = key if re.fullmatch(r"\w+", key) else _quoted(key)
    if isinstance(value, str):
        value = _quoted(value)
    elif isinstance(value, bool):
        value = str(value).lower()
    elif isinstance(value, float):
        value = f"{value:.4g}"
    return f"{bare} = {value}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _figures(model: DeviceModel) -> Iterator[tuple[list[str], Any]]:
    """Every figure, by the keys that lead to it."""
    for table in model.__struct_fields__:
        value = getattr(model, table)
        rows = [([table], value)]
        if isinstance(value, list):
            rows = [([table, f"[{index}]"], row) for index, row in enumerate(value)]
        for keys, row in rows:
            if isinstance(row, msgspec.Struct):
                for field in row.__struct_fields__:
                    if field not in ("name", "scheme"):
                        yield [*keys, field], getattr(row, field)


def _source(model: DeviceModel, keys: list[str]) -> str | None:
    table, field = keys[0], keys[-1]
    return model.sources.get(f"{table}.{field}") or model.sources.get(table)


def _refused(text: str, name: str, keys: list[str], what: str) -> DeviceError:
    return DeviceError(f"{name}:{line_of(text, keys)}: key {shown(keys)!r}: {what}")
