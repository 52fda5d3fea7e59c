"""Measured speeds beside what memory, and the tensor cores at their peak, would allow."""

from collections.abc import Sequence
from functools import partial

from mixpert_py.runtime.model.device_model import DeviceModel, model_of
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get
from samples.papers.columns import Measure
from samples.papers.exhibit import Column, Found, Row
from samples.papers.place import SQUARES, Place

SHAPES = ((8192, 16, 8192), (8192, 64, 8192), (8192, 256, 8192), *((n, n, n) for n in SQUARES))

INTENSITY = Column("intensity", "operations a byte", ".1f")
COLUMNS = (
    *(Column("name", "product"), Column("m", "m"), Column("k", "k"), Column("n", "n"), INTENSITY),
    *(Column("tflops", "TFLOP/s", ".1f"), Column("share", "of its roof", ".0%")),
)


def roofline(*names: str) -> Measure:
    """Speeds and roofs of schemes, over products of several intensities."""
    return partial(_roofline, names)


def headline(rows: Sequence[Row]) -> str:
    """The share of its roof that the first scheme reaches at the largest product."""
    row = max((row for row in rows if row["share"]), key=lambda row: row["m"] * row["k"])
    return f"{row['name']} reaches {row['share']:.0%} of its roof at {row['m']}³"


def _roofline(names: Sequence[str], place: Place) -> Found:
    model = model_of(device_name(place))
    rows: list[Row] = []
    for name in names:
        for shape in SHAPES:
            (row,) = place.speeds((name,), *shape)
            m, k, n = (row[key] for key in "mkn")
            intensity = 2 * m * n * k / (4 * (m * k + k * n + m * n))
            top = roof(model, name, intensity)
            rows.append({**row, "intensity": intensity, "share": row["tflops"] / top})
            rows.append(
                {**row, "name": f"roof of {name}", "intensity": intensity, "tflops": top}
                | {"share": None}
            )
    rows.sort(key=lambda row: (row["name"], row["intensity"]))
    note = "Operations a byte of A, B and C, each moved once. Roofs are those of the device model "
    return Found(rows, note=f"{note}of {model.device}, {model.date}.")


def roof(model: DeviceModel, name: str, intensity: float) -> float:
    """TFLOP/s that memory and the matrix instructions, a product for every term, allow."""
    scheme = get(name)
    assert isinstance(scheme, Scheme)
    rate: float = getattr(model.rates, scheme.element.name)
    return min(intensity * model.dram.bandwidth, rate / scheme.products) / 1e12


def device_name(place: Place) -> str:
    """The current GPU, as CUDA names it."""
    name: bytes = place.xp.cuda.runtime.getDeviceProperties(place.xp.cuda.Device().id)["name"]
    return name.decode()
