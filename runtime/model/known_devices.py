"""The device models that are here: the user's own, by `mixpert probe`, then the shipped ones.

A file of the user's that others could have written is none.
"""

import re
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path

from mixpert_py.errors import DeviceError
from mixpert_py.runtime import own_files
from mixpert_py.runtime.model import STANDS_IN
from mixpert_py.runtime.model.device_model import SHIPPED, DeviceModel, dumps, load

# Of a GPU without a model, by a pattern of its name: the modelled GPU whose rates have its ratios.
NEAREST = {
    r"geforce rtx 30": "nvidia-geforce-rtx-3090",
    r"geforce rtx 40": "nvidia-geforce-rtx-4090",
    r"geforce rtx 50": "nvidia-geforce-rtx-5090",
    r"ada generation|nvidia l\d": "nvidia-l40s",
    r"rtx a\d|nvidia a(2|10|10g|16|40)\b": "nvidia-a10",
    r"nvidia a\d": "nvidia-a100-sxm4-80gb",
    r"nvidia g?b\d00": "nvidia-b200",
}


def find(name: str) -> DeviceModel:
    """The model of a device: by its name as CUDA gives it, or by words of it ("h200", "rtx 3090").

    Raises DeviceError where no model has these words in a row, where several have, and where the
    file is malformed.
    """
    known = _files()
    wanted = slug(name)
    matching = [wanted] if wanted in known else _having(wanted, list(known))
    if len(matching) != 1:
        what = "several device models match" if matching else "no device model is known for"
        listed = ", ".join(sorted(matching or known))
        raise DeviceError(f"{what} {name!r}; choose from: {listed}")
    return load(known[matching[0]])


@cache
def model_of(device: str) -> DeviceModel:
    """The model to go by on a device of this name: its own if it has a sound one, else that of the
    nearest GPU of its generation, else that of an H200.

    What measures a device again keeps its model by `keep`, and is believed from then on.
    """
    nearest = (model for name, model in NEAREST.items() if re.search(name, device.lower()))
    for name in (device, *nearest, STANDS_IN):
        try:
            return find(name)
        except DeviceError:
            continue
    return load(SHIPPED / f"{STANDS_IN}.toml")


def names() -> list[str]:
    """The names that `find` accepts, sorted."""
    return sorted(_files())


def path_of(device: str) -> Path:
    """The path of the user's own model of a device, which need not exist."""
    return own_files.folder("models") / f"{slug(device)}.toml"


def keep(model: DeviceModel) -> Path:
    """Write a model where `find` finds it first. Raises DeviceError where that is not possible."""
    path = path_of(model.device)
    try:
        own_files.write(path, dumps(model).encode())
    except OSError as error:
        what = f"{path}: cannot write the device model: {error.strerror}"
        raise DeviceError(f"{what}; `mixpert probe -o FILE` writes it elsewhere") from None
    model_of.cache_clear()
    return path


def slug(device: str) -> str:
    """A device's name as its file has it: "NVIDIA H200" is nvidia-h200."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


def _having(wanted: str, known: list[str]) -> list[str]:
    return [name for name in known if wanted and f"-{wanted}-" in f"-{name}-"]


def _files() -> dict[str, Traversable]:
    """Files by slug; the user's own take the place of those that are shipped."""
    found: dict[str, Traversable] = {}
    for file in (*SHIPPED.iterdir(), *own_files.files(own_files.folder("models"))):
        if file.name.endswith(".toml"):
            found[file.name.removesuffix(".toml")] = file
    return found
