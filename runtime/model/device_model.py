"""Device models: what a GPU can do, as TOML files that `mixpert probe` writes.

Every quantity is in SI base units: bytes, seconds, hertz, bytes/s, operations/s (a multiply-add is
two). Latencies and intervals of instructions are in cycles of the multiprocessor. None: not known,
as in published figures it may be.

The user's own models come before the shipped ones. A file of the user's that others could have
written is none.
"""

import datetime
import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from mixpert_py.errors import DeviceError, one_line
from mixpert_py.runtime import own_files
from mixpert_py.runtime.model import STANDS_IN
from mixpert_py.toml_lines import MAX_BYTES, decoded, explained, line_of, shown
from mixpert_py.toml_lines import tables as tables_of

Count = Annotated[int, msgspec.Meta(ge=1)]
Quantity = Annotated[float, msgspec.Meta(gt=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
FORMAT = 1
FIGURE = re.compile(r"(?<= = )\d+(?=[.e])[\d.]*(e[+-]\d+)?$", re.MULTILINE)  # not an integer
SHIPPED = files("mixpert_py.runtime.model") / "devices"


class ModelTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table of the file: immutable, and strict about its keys."""


class Chip(ModelTable, frozen=True):
    """clock: hertz, the highest it takes."""

    multiprocessors: Count
    clock: Quantity


class Shared(ModelTable, frozen=True):
    """Shared memory. per_block: bytes; bandwidth in bytes/cycle of one multiprocessor."""

    per_block: Count
    bandwidth: Quantity | None = None


class L2(ModelTable, frozen=True):
    """The cache that all multiprocessors share. bandwidth of reading in bytes/s."""

    bandwidth: Quantity | None = None


class Dram(ModelTable, frozen=True):
    """bandwidth: of reading, bytes/s. copy: bytes/s read and written together."""

    bandwidth: Quantity
    copy: Quantity | None = None


class Transfer(ModelTable, frozen=True):
    """staged: bytes/s of a product of NumPy arrays, to the device and back."""

    staged: Quantity | None = None


class Host(ModelTable, frozen=True):
    """float32: operations/s of NumPy's product of large float32 matrices, on so many cores; None:
    as many as there are now.
    """

    float32: Quantity | None = None
    cores: Count | None = None


class Rates(ModelTable, frozen=True):
    """Operations/s of the whole chip with its operands resident, by the best instruction it has.

    int8 to tf32: tensor cores, added in INT32 and FP32; float32: CUDA cores; float64: whatever is
    fastest. `mixpert probe` takes those of the quickest kernels, and of the vendor's library.
    """

    int8: Quantity | None = None
    float16: Quantity | None = None
    bfloat16: Quantity | None = None
    tf32: Quantity | None = None
    float32: Quantity | None = None
    float64: Quantity | None = None


class Instruction(ModelTable, frozen=True):
    """A matrix instruction, named by its shape, the type of A and B, and the place of A.

    "mma.sync m16n8k16 float16", "wgmma m64n256k32 int8", "wgmma m64n256k32 int8 registers".
    "fma float32" is one of CUDA cores.

    latency: cycles until the result of one can be used. chain: cycles of one in a chain, each
    adding to the sums of the one before. interval: cycles from one to the next on a multiprocessor
    that is full of them. rate: operations/s of the whole chip.
    """

    name: str
    latency: Quantity | None = None
    chain: Quantity | None = None
    interval: Quantity | None = None
    rate: Quantity | None = None


class Accumulation(ModelTable, frozen=True):
    """The way in which a floating-point matrix instruction accumulates its products.

    group: products that are added at once, along K. fraction: bits kept below the one of the
    largest exponent, see `reference.engine`. floor: exponent below which nothing is aligned,
    however small all are; None: there is none.
    """

    group: Annotated[int, msgspec.Meta(ge=1)]
    fraction: Annotated[int, msgspec.Meta(ge=1, le=40)]
    floor: int | None = None


class IntegerAccumulation(ModelTable, frozen=True):
    """The behaviour of an integer matrix instruction when INT32 does not hold the sum."""

    overflow: Literal["wraps"]


AnyAccumulation = Accumulation | IntegerAccumulation


class Accumulations(ModelTable, frozen=True):
    """The ways in which matrix instructions accumulate products, by the type of A and B."""

    float16: Accumulation | None = None
    bfloat16: Accumulation | None = None
    tf32: Accumulation | None = None
    int8: IntegerAccumulation | None = None


class KernelCost(ModelTable, frozen=True):
    """The GEMM kernel of a scheme's name with tiles of m × n, in seconds: of a product beside its
    waves, of a wave beside its steps, and of a step, 64 bytes of K.
    """

    scheme: str
    m: Count
    n: Count
    base: Seconds
    tile: Seconds
    step: Quantity


class PackingCost(ModelTable, frozen=True):
    """Predicted packing time in seconds, by scheme name.

    base + bytes / rate for large operands, counting bytes of operands read and slices written;
    small + length · K for small ones. rate: in bytes/s.
    """

    scheme: str
    base: Seconds
    rate: Quantity
    small: Seconds
    length: Seconds


class Vendor(ModelTable, frozen=True):
    """The vendor's library. Operations/s of large products."""

    float32: Quantity | None = None
    float64: Quantity | None = None


class DeviceModel(ModelTable, frozen=True):
    """The model of a GPU. device: CUDA's name for it. capability: major · 10 + minor.

    sources: where published figures come from, by "table.key", or by "table" for all of it;
    instructions by "instruction". Each figure of a shipped model that is published has one.
    """

    format: int
    device: str
    capability: Annotated[int, msgspec.Meta(ge=70)]
    date: datetime.date
    origin: Literal["measured", "published"]
    chip: Chip
    shared: Shared
    dram: Dram
    driver: str = ""
    cuda: str = ""
    l2: L2 = L2()
    transfer: Transfer = Transfer()
    host: Host = Host()
    rates: Rates = Rates()
    vendor: Vendor = Vendor()
    accumulation: Accumulations = Accumulations()
    instruction: list[Instruction] = []
    kernel: list[KernelCost] = []
    packing: list[PackingCost] = []
    sources: dict[str, str] = {}


def loads(text: str, name: str = "device model") -> DeviceModel:
    """Parse a device model; `name` stands for it in errors.

    Raises DeviceError, in one line that names the key and its line, where it is malformed.
    """
    try:
        tables = tables_of(text)
    except ValueError as error:
        raise DeviceError(f"{name}: {error}") from None
    if tables.get("format", FORMAT) != FORMAT:
        what = f"{one_line(tables['format'])}; this version reads {FORMAT}"
        raise _refused(text, name, ["format"], what)
    try:
        return msgspec.convert(tables, DeviceModel)
    except msgspec.ValidationError as error:
        raise _refused(text, name, *explained(str(error), tables)) from None


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
    import tomlkit  # not above: models are read at every start, and written by `mixpert probe`

    text = tomlkit.dumps(msgspec.to_builtins(model, builtin_types=[datetime.date]))
    return FIGURE.sub(lambda found: f"{float(found[0]):.4g}", text)


def _refused(text: str, name: str, keys: list[str], what: str) -> DeviceError:
    return DeviceError(f"{name}:{line_of(text, keys)}: key {shown(keys)!r}: {what}")


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
    having = [it for it in known if wanted and f"-{wanted}-" in f"-{it}-"]
    matching = [wanted] if wanted in known else having
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


def _files() -> dict[str, Traversable]:
    """Files by slug; the user's own take the place of those that are shipped."""
    found: dict[str, Traversable] = {}
    for file in (*SHIPPED.iterdir(), *own_files.files(own_files.folder("models"))):
        if file.name.endswith(".toml"):
            found[file.name.removesuffix(".toml")] = file
    return found
