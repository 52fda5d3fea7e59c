"""LE-GEMM 2025: speed and error against its peers, roofline, tile model, pipeline."""

from samples.papers import applications, tiles
from samples.papers.columns import (
    FROBENIUS,
    MAX,
    MILLISECONDS,
    MRED,
    NAME,
    RANGE,
    SIZE,
    SKEWED_SPEED,
    SQUARE_SPEED,
    TFLOPS,
    errors,
    largest,
    over_fp32,
    skewed,
    squares,
)
from samples.papers.exhibit import QUOTED, Column, Exhibit, Lines, Paper, Published
from samples.papers.histogram import histogram
from samples.papers.place import FP16, RANGES, SQUARES
from samples.papers.roofline import COLUMNS, INTENSITY, headline, roofline

PEERS = ("ootomo", "egemm", "markidis-ab", "legemm", "int8x6")
SHARE = Column("share", "share of elements", ".2%")
ERROR = Column("error", "relative error", ".1e")

EXHIBITS = (
    Exhibit(
        "legemm-speed",
        "Table 6, figs. 8–18: speed",
        "Speed of N × N × N products",
        "The scheme beside cuBLAS FP32, the scheme of cuMpSGEMM (`ootomo`) and earlier ones, all "
        "by this project's kernels.",
        SQUARE_SPEED,
        squares(*PEERS),
        Lines(SIZE, TFLOPS),
        headline=over_fp32("legemm"),
    ),
    Exhibit(
        "legemm-skewed",
        "Table 6, figs. 8–18: skewed shapes",
        "Speed of skewed products",
        "Long, flat and uneven shapes; those of the paper are not known here.",
        SKEWED_SPEED,
        skewed("ootomo", "legemm", "int8x6"),
        headline=over_fp32("legemm"),
    ),
    Exhibit(
        "legemm-error",
        "Table 6, figs. 8–18: errors",
        "Largest and mean relative error",
        "Against the FP32 product, as the paper measures them, over N and ranges of operands.",
        (NAME, RANGE, SIZE, MAX, MRED, FROBENIUS),
        errors((FP16, *PEERS), RANGES, SQUARES[:3]),
        Lines(SIZE, MRED, ("name", "range")),
        gpu=False,
        headline=largest("legemm"),
    ),
    Exhibit(
        "legemm-histogram",
        "Table 6, figs. 8–18: histograms",
        "How errors are spread",
        "Relative errors of all elements against the FP32 product.",
        (NAME, RANGE, ERROR, SHARE),
        histogram("ootomo", "egemm", "legemm", "int8x6"),
        Lines(ERROR, SHARE, ("name", "range")),
        gpu=False,
    ),
    Exhibit(
        "legemm-roofline",
        "Table 6, figs. 8–18: roofline",
        "Roofline",
        "Whole products, packing included, beside what memory and tensor cores would allow.",
        COLUMNS,
        roofline("legemm", "int8x6"),
        Lines(INTENSITY, TFLOPS),
        headline=headline,
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
        (Column("name", "size"), Column("tile", "tile"), tiles.STAGES, MILLISECONDS, tiles.GAIN),
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
