"""MixPert 2024: levels of integer emulation, applications, search, overhead, shared GPUs."""

from collections.abc import Sequence
from pathlib import Path

from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get
from samples.papers import applications, shared_gpu
from samples.papers.columns import (
    FROBENIUS,
    MILLISECONDS,
    NAME,
    RANGE,
    SIZE,
    TFLOPS,
    TIMES,
    errors,
    mean,
    saved,
)
from samples.papers.exhibit import (
    Bars,
    Column,
    Exhibit,
    Found,
    Lines,
    Missing,
    Paper,
    Published,
    Row,
)
from samples.papers.place import FP32, SQUARES, Place
from tests.benchmarks import machine

ABSTRACT = "abstract, LCTES 2024"
LEVELS = ("mixpert-full", "mixpert-IV", "mixpert-III", "mixpert-II", "mixpert-I")
PEERS = ("bf16x6", "tf32x3", "int8x6")
PUBLISHED = (
    Published("average over cuBLAS on general-purpose cores", "1.72×", ABSTRACT),
    Published("average over APE", "1.22×", ABSTRACT),
    Published("average over CUTLASS", "1.21×", ABSTRACT),
)


def levels(place: Place) -> Found:
    """Slice products, speed and error of every level at one size."""
    n = place.size(4096)
    timed = place.speeds((FP32, *LEVELS, *PEERS), 4096, 4096, 4096)
    judged = place.errors([row["name"] for row in timed], "[-1, 1)", n, n, n)
    rows = []
    for row, error in zip(timed, judged, strict=True):
        scheme = None if row["name"] == FP32 else get(row["name"])
        products = scheme.products if isinstance(scheme, Scheme) else None
        rows.append({**row, "products": products, "frobenius": error["frobenius"]})
    return Found(rows)


def search(place: Place) -> Found | Missing:
    """What every search saves where all plans have been run, and in how many runs."""
    found = saved("search", Path(__file__).parent)
    if found is None:
        return Missing("`python -m samples.papers.search --save` makes these rows")
    full = {
        (row["program"], row["operators"], row["levels"], row["budget"]): row["gain"]
        for row in found["rows"]
        if row["search"] == "exhaustive"
    }
    rows = []
    for row in found["rows"]:
        best = full.get((row["program"], row["operators"], row["levels"], row["budget"]))
        if best is not None:
            share = row["gain"] / best if best else None
            rows.append({**row, "share": share, "name": f"{row['program']} {row['search']}"})
    note = "Saved: part of the products' cost. At 1e-7 no plan of the Cholesky sample passes."
    return Found(rows, machine.text(found["machine"]), note)


def searched(rows: Sequence[Row]) -> str:
    shares, runs, plans = [], [], []
    for row in rows:
        if row["search"] == "predictive" and row["share"] is not None:
            shares.append(row["share"])
            runs.append(row["runs"])
        if row["search"] == "exhaustive":
            plans.append(row["runs"])
    return (
        f"at least {min(shares):.0%} of what the best plan saves, in {min(runs)}–{max(runs)} "
        f"runs of {min(plans)}–{max(plans)}"
    )


def overhead(place: Place) -> Found:
    """The parts of a product's time: packing, the kernel, and the rest."""
    rows = []
    for n in SQUARES:
        for row in place.speeds(("mixpert-IV", "mixpert-I", "int8x6"), n, n, n):
            rest = row["seconds"] - row["packing"] - row["gemm"]
            rows.append({**row, "rest": max(0.0, rest)})
    return Found(rows, note="Rest: repair of NaN, Inf and outliers, and gaps between launches.")


def packed(rows: Sequence[Row]) -> str:
    n = max(row["n"] for row in rows)
    parts = [
        f"{row['name']} {row['packing'] / row['seconds']:.0%}"
        for row in rows
        if row["n"] == n and row["name"] != "mixpert-I"
    ]
    return f"packing takes {', '.join(parts)} of a product at N = {n}"


EXHIBITS = (
    Exhibit(
        "mixpert-levels",
        "Table 1",
        "Levels of the emulation",
        "Every level at N = 4096, on normal data for speed and uniform [-1, 1) for errors, beside "
        "int8x6 and the schemes of APE and CUTLASS, bf16x6 and tf32x3 (by this project's kernels).",
        (NAME, Column("products", "slice products"), MILLISECONDS, TFLOPS, TIMES, FROBENIUS),
        levels,
        Lines(TFLOPS, FROBENIUS, joined=False),
        PUBLISHED,
        headline=lambda rows: (
            f"mixpert-IV {mean(rows, 'mixpert-IV'):.2f}×, int8x6 {mean(rows, 'int8x6'):.2f}× "
            "cuBLAS FP32 at N = 4096"
        ),
    ),
    Exhibit(
        "mixpert-applications",
        "fig. 8",
        "Applications",
        "Whole programs, rewritten by the tool and run under tuned plans.",
        applications.COLUMNS,
        applications.applications(),
        applications.PICTURE,
        published=PUBLISHED[:1],
        gpu=False,
        headline=applications.headline,
    ),
    Exhibit(
        "mixpert-error",
        "figs. 9–12: error",
        "Error against FP64",
        "Relative Frobenius error of a product, against the same in FP64, over its length.",
        (NAME, RANGE, SIZE, FROBENIUS),
        errors((FP32, *LEVELS, *PEERS), ("[-1, 1)", "[0, 1)"), SQUARES),
        Lines(SIZE, FROBENIUS, ("name", "range")),
        gpu=False,
    ),
    Exhibit(
        "mixpert-search",
        "figs. 9–12: the tuner",
        "Tuner against exhaustive search",
        "Cholesky and MLP, with few enough operators and levels for every plan to be run.",
        (
            Column("program", "program"),
            Column("search", "search"),
            Column("budget", "budget", ".0e"),
            Column("gain", "saved", ".1%"),
            Column("share", "of the best", ".1%"),
            Column("runs", "runs"),
        ),
        search,
        Lines(
            Column("runs", "programs run"),
            Column("gain", "saved", ".1%"),
            ("search",),
            joined=False,
        ),
        gpu=False,
        headline=searched,
    ),
    Exhibit(
        "mixpert-overhead",
        "figs. 9–12: overhead",
        "Where the time goes",
        "Packing, the kernel, and the rest of a product, timed apart and whole.",
        (
            *(NAME, SIZE, MILLISECONDS),
            Column("packing", "packing, ms", ".3f", 1e3),
            Column("gemm", "kernel, ms", ".3f", 1e3),
            Column("rest", "rest, ms", ".3f", 1e3),
        ),
        overhead,
        Bars(
            (Column("packing", "packing"), Column("gemm", "kernel"), Column("rest", "rest")),
            ("name", "n"),
        ),
        headline=packed,
    ),
    Exhibit(
        "mixpert-processes",
        "figs. 9–12: several processes",
        "Processes that share the GPU",
        "So many processes, each multiplying in a loop, all at once; their throughput together.",
        (NAME, Column("processes", "processes"), SIZE, TFLOPS, Column("scaling", "× one", ".2f")),
        shared_gpu.measure,
        Lines(Column("processes", "processes"), TFLOPS),
        headline=shared_gpu.headline,
    ),
)

PAPER = Paper(
    "mixpert",
    "MixPert",
    "MixPert: Optimizing Mixed-Precision Floating-Point Emulation on GPU Integer Tensor Cores, "
    "LCTES 2024",
    "an A100",
    EXHIBITS,
)
