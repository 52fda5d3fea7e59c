"""EGEMM-TC 2021: error over N, and speed against what there was before."""

from samples.papers import applications, columns
from samples.papers.baselines import SDK, SEPARATE_CALLS
from samples.papers.exhibit import Exhibit, Lines, Paper, Published
from samples.papers.place import FP16, SQUARES

ABSTRACT = "abstract, PPoPP 2021, doi:10.1145/3437801.3441599"
OURS = ("int8x6", "fp16x3")

EXHIBITS = (
    Exhibit(
        "egemm-error",
        "fig. 7",
        "Largest error over N",
        "Largest difference from the FP32 product, as the paper measures it, and from FP64; "
        "uniform operands in [-1, 1).",
        (columns.NAME, columns.SIZE, columns.MAX, columns.MAX_EXACT),
        columns.errors(
            (FP16, "markidis-trunc", "markidis-ab", "egemm", *OURS), ("[-1, 1)",), SQUARES
        ),
        Lines(columns.SIZE, columns.MAX),
        gpu=False,
        headline=columns.largest("egemm"),
    ),
    Exhibit(
        "egemm-speed",
        "figs. 8–10, 12",
        "Speed of N × N × N products",
        "The scheme beside the paper's baselines: cuBLAS FP32, cuBLAS FP16 (half operands, FP32 "
        "result, casts included), the same emulation by four calls of cuBLAS and separate sums, a "
        "tiled FP32 kernel as in the CUDA toolkit's samples, and Markidis's refinement.",
        columns.SQUARE_SPEED,
        columns.squares(FP16, SEPARATE_CALLS, SDK, "markidis-ab", "egemm", *OURS),
        Lines(columns.SIZE, columns.TFLOPS),
        (
            Published("average over cuBLAS on CUDA cores", "3.13×", ABSTRACT),
            Published("average over CUDA SDK kernels on CUDA cores", "11.18×", ABSTRACT),
        ),
        headline=lambda rows: (
            f"egemm {columns.mean(rows, 'egemm'):.2f}× cuBLAS FP32, "
            f"{columns.mean(rows, 'egemm') / columns.mean(rows, SDK):.1f}× the SDK-style kernel"
        ),
    ),
    Exhibit(
        "egemm-skewed",
        "figs. 8–10, 12: skewed",
        "Speed of skewed products",
        "Long, flat and uneven shapes; those of the paper are not known here.",
        columns.SKEWED_SPEED,
        columns.skewed(SEPARATE_CALLS, "markidis-ab", "egemm", "int8x6"),
        headline=columns.over_fp32("egemm"),
    ),
    Exhibit(
        "egemm-applications",
        "§7.5",
        "kNN and k-means",
        "Whole programs, rewritten by the tool and run under tuned plans.",
        applications.COLUMNS,
        applications.applications("knn", "kmeans"),
        applications.PICTURE,
        published=(
            Published("applications, over hand-tuned code on CUDA cores", "about 1.8×", ABSTRACT),
        ),
        gpu=False,
        headline=applications.headline,
    ),
)

PAPER = Paper(
    "egemm",
    "EGEMM-TC",
    "Feng et al.: EGEMM-TC: Accelerating Scientific Computing on Tensor Cores with Extended "
    "Precision, PPoPP 2021",
    "a Tesla T4",
    EXHIBITS,
)
