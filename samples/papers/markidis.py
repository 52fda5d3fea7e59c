"""Markidis et al. 2018: speed of tensor cores, batched products, refinement of precision."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from mixpert_py.runtime.probes.gpu import TimedCall, in_turn
from samples.papers.columns import (
    MAX,
    MAX_EXACT,
    MILLISECONDS,
    NAME,
    RANGE,
    SIZE,
    SQUARE_SPEED,
    TFLOPS,
    TIMES,
    errors,
    largest,
    squares,
)
from samples.papers.exhibit import QUOTED, Column, Exhibit, Found, Lines, Paper, Published, Row
from samples.papers.place import FP16, FP32, SQUARES, WIDE_RANGE, Place
from tests.benchmarks.families import Numbers, narrow
from tests.benchmarks.timing import error_line, timing

ABSTRACT = "abstract, arXiv:1803.04014 (Tesla V100)"
REFINED = ("fp16", "markidis-a", "markidis-ab")
OURS = ("int8x3", "fp16x3", "int8x6")
EDGE = 16
COUNTS = (1 << 14, 1 << 16, 1 << 18)
BATCHED = (FP32, FP16, "fp16", "markidis-ab", "int8x6", "faithful")
WIDE = "[-16, 16)"
(WITHOUT, WITH) = (8.32, 0.24)
PAIR = (("published, no refinement", WITHOUT), ("published, refined", WITH))
REFINEMENT = (
    Published("largest error, [-16, 16), no refinement", f"{WITHOUT}", QUOTED, confirmed=False),
    Published("largest error, [-16, 16), refined", f"{WITH}", QUOTED, confirmed=False),
)


def batched(place: Place) -> Found:
    """So many products of 16 × 16 matrices in one call; a contender that cannot is left out."""
    assert place.clock is not None
    rows: list[Row] = []
    failed: dict[str, str] = {}
    for count in place.sizes(COUNTS):
        source = Numbers(place.xp, count)
        a, b = (
            narrow(source.uniform(-1.0, 1.0, (count, EDGE, EDGE)), np.float32) for _ in range(2)
        )
        calls: dict[str, TimedCall] = {}
        for name in BATCHED:
            try:
                call = place.contenders[name].prepare(a, b).whole
                call()
                calls[name] = call
            except Exception as error:  # the others are measured all the same
                failed[name] = error_line(error)
        samples = in_turn(place.clock, calls, place.rounds)
        seconds = {name: timing(taken)["median"] for name, taken in samples.items()}
        for name, spent in seconds.items():
            tflops, times = 2e-12 * count * EDGE**3 / spent, seconds[FP32] / spent
            shared = {"name": name, "count": count, "seconds": spent}
            rows.append({**shared, "tflops": tflops, "times": times})
    return Found(rows, note="; ".join(f"{name} failed: {why}" for name, why in failed.items()))


def batched_headline(rows: Sequence[Row]) -> str:
    """The most that half precision does, by cuBLAS and by this project, and `faithful`."""
    best = {
        name: max((row["tflops"] for row in rows if row["name"] == name), default=0.0)
        for name in (FP16, "fp16", "faithful")
    }
    return ", ".join(f"{name} {most:.1f} TFLOP/s" for name, most in best.items() if most)


def error_and_time(sizes: Sequence[int], range_: str, place: Place) -> Found:
    """Largest error and time of every refinement, at several sizes."""
    names = (FP32, *REFINED, *OURS)
    rows: list[Row] = []
    for n in place.sizes(sizes):
        found = place.errors(names, range_, n, n, n)
        if place.clock is not None:
            timed = {row["name"]: row for row in place.speeds(names, n, n, n)}
            found = [{**timed[row["name"]], **row} for row in found]
        rows += found
    return Found(rows)


def refined(rows: Sequence[Row]) -> str:
    """Errors without and with refinement at 4096, or the largest size there is."""
    sizes = {row["n"] for row in rows}
    n = 4096 if 4096 in sizes else max(sizes)
    at = {row["name"]: row["max"] for row in rows if row["n"] == n}
    return f"{at['fp16']:.3g} → {at['markidis-ab']:.2g}, int8x6 {at['int8x6']:.2g}, at N = {n}"


EXHIBITS = (
    Exhibit(
        "markidis-speed",
        "figs. 6–9: speed",
        "Speed of N × N × N products",
        "cuBLAS in FP32 and by tensor cores with FP16 operands, casts included; `fp16` is the same "
        "by this project's kernels.",
        SQUARE_SPEED,
        squares(FP16, "fp16"),
        Lines(SIZE, TFLOPS),
        (
            Published("tensor cores, FP16 operands, at most", "83 TFLOP/s", ABSTRACT),
            Published("over single precision", "7×", ABSTRACT),
            Published("over half precision", "3×", ABSTRACT),
        ),
        headline=lambda rows: (
            f"{max(row['tflops'] for row in rows):.0f} TFLOP/s, "
            f"{max(row['times'] for row in rows):.1f}× cuBLAS FP32"
        ),
    ),
    Exhibit(
        "markidis-batched",
        "figs. 6–9: batched",
        "Many 16 × 16 products",
        "All of a stack in one call; cuBLAS's strided batches beside this project's kernels. "
        "`faithful` leaves products as small as these in FP32: memory limits them.",
        (NAME, Column("count", "products", ","), MILLISECONDS, TFLOPS, TIMES),
        batched,
        Lines(Column("count", "products", ","), TFLOPS),
        (Published("batched products by WMMA", "4 TFLOP/s", ABSTRACT),),
        headline=batched_headline,
    ),
    Exhibit(
        "markidis-error",
        "figs. 6–9: error over N",
        "Largest error over N",
        "No refinement (cuBLAS FP16), of A alone, of both operands; largest difference from the "
        "FP32 product and from FP64, uniform operands in [-1, 1).",
        (NAME, SIZE, MAX, MAX_EXACT),
        errors((FP16, "markidis-a", "markidis-ab", *OURS), ("[-1, 1)",), SQUARES),
        Lines(SIZE, MAX),
        gpu=False,
        headline=largest("markidis-ab"),
    ),
    Exhibit(
        "markidis-error-time",
        "figs. 6–9: error against time",
        "Error against time",
        "Every refinement as a point: its time, packing included, and its largest difference from "
        "the FP32 product; uniform operands in [-1, 1).",
        (NAME, SIZE, MILLISECONDS, MAX, MAX_EXACT),
        partial(error_and_time, (4096, 8192, 16384), "[-1, 1)"),
        Lines(MILLISECONDS, MAX, ("name", "n"), joined=False),
    ),
    Exhibit(
        "markidis-wide",
        "figs. 6–9: operands in ±16",
        "Operands in ±16",
        "The same of uniform operands in [-16, 16), where half precision is off by whole numbers; "
        "the size that the published pair belongs to is not known here.",
        (NAME, RANGE, SIZE, MILLISECONDS, MAX, MAX_EXACT),
        partial(error_and_time, SQUARES[1:], next(iter(WIDE_RANGE))),
        Lines(SIZE, MAX, marks=PAIR),
        REFINEMENT,
        gpu=False,
        headline=refined,
    ),
)

PAPER = Paper(
    "markidis",
    "Markidis et al.",
    "Markidis et al.: NVIDIA Tensor Core Programmability, Performance & Precision, 2018, "
    "arXiv:1803.04014",
    "a Tesla V100",
    EXHIBITS,
)
