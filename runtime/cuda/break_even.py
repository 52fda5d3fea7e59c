"""From which size on a scheme beats the native product: measured per device, and kept."""

import math
import re
import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path

from mixpert_py.runtime.call import Array
from mixpert_py.runtime.trace import Shape

SHIPPED = "nvidia-h200"  # figures of this device stand in for those of one that nobody measured
STARTING = 3.0  # seconds until CuPy is imported and CUDA has begun
SAFETY = 1.2  # by how much moving must be faster: the host may be busier than when measured


# Of stacks of small products, which one kernel makes (`small`): schemes, edges, and from which
# thickness on it beats the vendor's FP32 stacks. Measured at 43 (1.2 ×) and 21 (0.8 ×).
SMALL_SCHEMES = ("int8x1", "int8x3", "int8x6")
SMALL_EDGE = 256
SMALL_THICKNESS = 40.0
SMALL_COUNT = 32


@dataclass(frozen=True, slots=True)
class BreakEven:
    """volume: the least m · n · k. thickness: the least m · n · k / (mk + kn + mn).

    Packing touches every element once, and the product reads each about min(m, n, k) times: where
    that is few times, nothing that packs can win, however large the product.
    """

    volume: float
    thickness: float

    def pays(self, shape: Shape, packed: int = 0) -> bool:
        """packed: elements of operands that are packed already."""
        m, k, n = shape
        volume, area = m * n * k, m * k + k * n + m * n - packed
        return volume >= self.volume and volume >= self.thickness * area


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured on one device.

    staging: bytes/s between NumPy arrays and the device. host: FLOP/s of a float32 product of NumPy
    arrays. schemes: by name; one that was not measured takes `faithful`'s.
    """

    device: str
    staging: float
    host: float
    schemes: dict[str, BreakEven] = field(default_factory=dict)

    def of(self, scheme: str) -> BreakEven:
        return self.schemes.get(scheme) or self.schemes["faithful"]


@cache
def figures(device: str) -> Figures:
    """The figures of a device: the user's own, else those that are shipped."""
    name = _file_name(device)
    for folder in (_user_folder(), files("mixpert_py.runtime.cuda") / "devices"):
        try:
            return parse((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError):
            continue  # not there, or not ours: what is kept here can be measured again
    return parse(
        (files("mixpert_py.runtime.cuda") / "devices" / f"{SHIPPED}.toml").read_text("utf-8")
    )


def parse(text: str) -> Figures:
    """The figures in a file. Raises ValueError or KeyError where `keep` did not write it."""
    table = tomllib.loads(text)
    schemes = {
        name: BreakEven(float(row["volume"]), float(row["thickness"]))
        for name, row in table["scheme"].items()
    }
    found = Figures(str(table["device"]), float(table["staging"]), float(table["host"]), schemes)
    found.of("faithful")
    return found


def written(measured: Figures) -> str:
    """The figures as a file."""
    lines = [
        f'device = "{measured.device}"',
        f"staging = {measured.staging:.3g}",
        f"host = {measured.host:.3g}",
    ]
    for name, row in measured.schemes.items():
        lines += ["", f'[scheme."{name}"]']
        lines += [f"volume = {float(row.volume)}", f"thickness = {float(row.thickness)}"]
    return "\n".join(lines) + "\n"


def keep(measured: Figures) -> Path:
    """Write the figures where `figures` finds them. Raises OSError where that is not possible."""
    path = _user_folder() / _file_name(measured.device)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(written(measured), encoding="utf-8")
    figures.cache_clear()
    return path


def small_pays(scheme: str, a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether a stack of small products, of operands of these shapes, beats the native one."""
    if max(len(a), len(b)) < 3 or scheme not in SMALL_SCHEMES:
        return False
    m, k, n = a[-2], a[-1], b[-1]
    return (
        max(m, k, n) <= SMALL_EDGE
        and m * n * k >= SMALL_THICKNESS * (m * k + k * n + m * n)
        and max(math.prod(a[:-2]), math.prod(b[:-2])) >= SMALL_COUNT
    )


def moving_pays(
    a: Array, b: Array, shape: Shape, scheme: str, known: Figures, starting: float
) -> bool:
    """Whether NumPy arrays are multiplied sooner on the device, their way there and back included.

    starting: seconds until the device can begin. Its own time is left out: where the way pays at
    all, it is a tenth of that.
    """
    if not known.of(scheme).pays(shape):
        return False
    m, k, n = shape
    moved = a.nbytes + b.nbytes + m * n * max(a.itemsize, b.itemsize)
    there = moved / known.staging + starting
    here = 2 * m * n * k / known.host * (max(a.itemsize, b.itemsize) / 4)
    return there * SAFETY < here


def _user_folder() -> Path:
    return Path("~/.cache/mixpert").expanduser()


def _file_name(device: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") + ".toml"
