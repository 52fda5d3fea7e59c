"""LE-GEMM 2025: speed and error against its peers, roofline, tile model, pipeline."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from mixpert_py.runtime.model.device_model import DeviceModel, model_of
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get
from samples.papers import applications, columns, tiles
from samples.papers.exhibit import QUOTED, Column, Exhibit, Found, Lines, Paper, Published, Row
from samples.papers.place import FP16, FP32, RANGES, SQUARES, Place
from tests.benchmarks.families import Array, wide

PEERS = ("ootomo", "egemm", "markidis-ab", "legemm", "int8x6")
SHARE = Column("share", "share of elements", ".2%")
ERROR = Column("error", "relative error", ".1e")
HISTOGRAM_SIZE = 2048
BINS = 4  # a decade
DECADES = (-12, 0)
NOTE = "Errors of 0 are in no bin; shares are of all elements."
SHAPES = ((8192, 16, 8192), (8192, 64, 8192), (8192, 256, 8192), *((n, n, n) for n in SQUARES))

INTENSITY = Column("intensity", "operations a byte", ".1f")
ROOFLINE = (
    *(columns.NAME, columns.M, columns.K, columns.N, INTENSITY, columns.TFLOPS),
    Column("share", "of its roof", ".0%"),
)


def histogram(names: Sequence[str], place: Place) -> Found:
    """Shares of elements by their relative error against the FP32 product, over input ranges."""
    n, rows = place.size(HISTOGRAM_SIZE), []
    for range_, limits in RANGES.items():
        a, b = place.uniform(limits, n, n, n)
        single = wide(place.product(FP32, a, b))
        for name in names:
            error = abs(wide(place.product(name, a, b)) - single)
            bins = _bins(place, error / (abs(single) + (single == 0)))
            rows += [{"name": name, "range": range_, **bin_} for bin_ in bins]
    return Found(rows, note=NOTE)


def _bins(place: Place, errors: Array) -> Iterator[Row]:
    """The middle of every bin that has elements, and their share."""
    logs = place.xp.log10(errors[errors > 0])
    edges = np.linspace(*DECADES, (DECADES[1] - DECADES[0]) * BINS + 1)
    counts, _ = place.xp.histogram(logs, bins=place.xp.asarray(edges))
    for edge, count in zip(edges, counts.tolist(), strict=False):
        if count:
            yield {"error": 10.0 ** (float(edge) + 0.5 / BINS), "share": count / errors.size}


def roofline_headline(rows: Sequence[Row]) -> str:
    """The share of its roof that the first scheme reaches at the largest product."""
    row = max((row for row in rows if row["share"]), key=lambda row: row["m"] * row["k"])
    return f"{row['name']} reaches {row['share']:.0%} of its roof at {row['m']}³"


def roofline(names: Sequence[str], place: Place) -> Found:
    """Speeds and roofs of schemes, over products of several intensities."""
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


EXHIBITS = (
    Exhibit(
        "legemm-speed",
        "Table 6, figs. 8–18: speed",
        "Speed of N × N × N products",
        "The scheme beside cuBLAS FP32, the scheme of cuMpSGEMM (`ootomo`) and earlier ones, all "
        "by this project's kernels.",
        columns.SQUARE_SPEED,
        columns.squares(*PEERS),
        Lines(columns.SIZE, columns.TFLOPS),
        headline=columns.over_fp32("legemm"),
    ),
    Exhibit(
        "legemm-skewed",
        "Table 6, figs. 8–18: skewed shapes",
        "Speed of skewed products",
        "Long, flat and uneven shapes; those of the paper are not known here.",
        columns.SKEWED_SPEED,
        columns.skewed("ootomo", "legemm", "int8x6"),
        headline=columns.over_fp32("legemm"),
    ),
    Exhibit(
        "legemm-error",
        "Table 6, figs. 8–18: errors",
        "Largest and mean relative error",
        "Against the FP32 product, as the paper measures them, over N and ranges of operands.",
        (columns.NAME, columns.RANGE, columns.SIZE, columns.MAX, columns.MRED, columns.FROBENIUS),
        columns.errors((FP16, *PEERS), RANGES, SQUARES[:3]),
        Lines(columns.SIZE, columns.MRED, ("name", "range")),
        gpu=False,
        headline=columns.largest("legemm"),
    ),
    Exhibit(
        "legemm-histogram",
        "Table 6, figs. 8–18: histograms",
        "How errors are spread",
        "Relative errors of all elements against the FP32 product.",
        (columns.NAME, columns.RANGE, ERROR, SHARE),
        partial(histogram, ("ootomo", "egemm", "legemm", "int8x6")),
        Lines(ERROR, SHARE, ("name", "range")),
        gpu=False,
    ),
    Exhibit(
        "legemm-roofline",
        "Table 6, figs. 8–18: roofline",
        "Roofline",
        "Whole products, packing included, beside what memory and tensor cores would allow.",
        ROOFLINE,
        partial(roofline, ("legemm", "int8x6")),
        Lines(INTENSITY, columns.TFLOPS),
        headline=roofline_headline,
    ),
    Exhibit(
        "legemm-tiles",
        "Table 6, figs. 8–18: the tile model",
        "What the model's choice of a tile gains",
        "Kernels by the tile that the time model chooses, against 128 × 64 for all, which stands "
        "for a choice by hand, and against the quickest of all tiles.",
        tiles.TILES,
        tiles.tiles,
        published=(Published("model over manual choice", "1.36–1.78×", QUOTED, confirmed=False),),
        headline=tiles.tiles_headline,
    ),
    Exhibit(
        "legemm-pipeline",
        "Table 6, figs. 8–18: the pipeline",
        "What the pipeline gains",
        "The kernel alone, by the number of stages that its copies run ahead.",
        (
            Column("name", "size"),
            Column("tile", "tile"),
            tiles.STAGES,
            columns.MILLISECONDS,
            tiles.GAIN,
        ),
        tiles.pipeline,
        Lines(tiles.STAGES, tiles.GAIN),
        headline=tiles.pipeline_headline,
    ),
    Exhibit(
        "legemm-applications",
        "§5.5",
        "Applications",
        "kNN, k-means and a language model's projections, rewritten and run under tuned plans.",
        applications.COLUMNS,
        applications.applications("knn", "kmeans", "qkv"),
        applications.PICTURE,
        published=(Published("applications", "1.16–1.34×", QUOTED, confirmed=False),),
        gpu=False,
        headline=applications.headline,
    ),
)

PAPER = Paper(
    "legemm",
    "LE-GEMM",
    "Zhang et al.: LE-GEMM: A lightweight emulation-based GEMM with precision refinement on GPU, "
    "Journal of Systems Architecture 160 (2025) 103336",
    "an NVIDIA A800 and an AMD MI210",
    EXHIBITS,
)
