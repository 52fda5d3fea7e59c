"""Raihan et al. 2019: what a thread holds, how long instructions take, a model against the chip."""

import re
from collections.abc import Sequence
from statistics import correlation as pearson
from statistics import median

from mixpert_py.runtime.model import STANDS_IN
from mixpert_py.runtime.model.device_model import DeviceModel, find
from samples.papers import tiles
from samples.papers.columns import NAME, K, M, N
from samples.papers.exhibit import Column, Exhibit, Found, Lines, Paper, Published, Row
from samples.papers.fragments import fragments as found_by
from samples.papers.gpu import Gpu
from samples.papers.instructions import timings
from samples.papers.place import Place

SHAPE = re.compile(r"[mnk](\d+)")
ABSTRACT = "abstract, arXiv:1811.08309 (Titan V)"
MEASURED = Column("measured", "measured, ms", ".4f", 1e3)
PREDICTED = Column("predicted", "predicted, ms", ".4f", 1e3)


def fragments(place: Place) -> Found:
    """The elements that each of 32 threads holds, found by running the instructions."""
    rows: list[Row] = []
    for name, parts in found_by(Gpu.current()).items():
        _, n, k = map(int, SHAPE.findall(name))
        for part in parts:
            flat = part.places.ravel().tolist()
            rows.append(
                {
                    "name": name,
                    "operand": part.operand,
                    "columns": k if part.operand == "A" else n,
                    "elements": len(set(flat)),
                    "each": part.places.shape[1],
                    "copies": len(flat) // len(set(flat)),
                    "places": " ".join(map(str, flat)),
                }
            )
    return Found(rows)


def latency(place: Place) -> Found:
    """Cycles of every matrix instruction: of this GPU, else of the one in its device model."""
    model = find(STANDS_IN)
    timed = timings() if place.clock is not None else model.instruction
    rows = [
        {"name": row.name, "latency": row.latency, "chain": row.chain, "interval": row.interval}
        | {"rate": row.rate}
        for row in timed
    ]
    return Found(rows, None if place.clock is not None else _where(model))


def chained(rows: Sequence[Row]) -> str:
    """The instruction that the paper's own is most like."""
    row = next(row for row in rows if row["name"] == "mma.sync m16n8k16 float16")
    return f"{row['name']}: {row['latency']:.0f} cycles, {row['chain']:.1f} in a chain"


def correlation(place: Place) -> Found:
    """Predicted and measured times of products."""
    copied = ("m", "k", "n", "batch", "measured", "predicted")
    rows: list[Row] = [
        {"name": row["scheme"], **{key: row[key] for key in copied}}
        | {"off": row["predicted"] / row["measured"] - 1}
        for row in tiles.rows(place.small)
    ]
    error = median(abs(row["off"]) for row in rows)
    return Found(rows, note=f"Median error {error:.1%}.")


def correlated(rows: Sequence[Row]) -> str:
    """Pearson's correlation of times."""
    value = pearson([row["measured"] for row in rows], [row["predicted"] for row in rows])
    return f"{value:.2%} over {len(rows)} products"


def _where(model: DeviceModel) -> str:
    return f"One {model.device}, driver {model.driver}, CUDA {model.cuda}, {model.date}."


EXHIBITS = (
    Exhibit(
        "raihan-fragments",
        "figs. 15–17, Table I: fragments",
        "Which thread holds which element",
        "Fragments of A, B and C in the registers of a warp, found by running the instructions on "
        "distinct values.",
        (
            Column("name", "instruction"),
            Column("operand", "operand"),
            Column("elements", "elements"),
            Column("each", "a thread"),
            Column("copies", "times each is held"),
        ),
        fragments,
    ),
    Exhibit(
        "raihan-latency",
        "figs. 15–17, Table I: instructions",
        "Latency of matrix instructions",
        "Cycles until one result can be used, of one in a chain, and between two on a full "
        "multiprocessor.",
        (
            Column("name", "instruction"),
            Column("latency", "latency, cycles", ".0f"),
            Column("chain", "in a chain", ".1f"),
            Column("interval", "apart", ".2f"),
            Column("rate", "TOP/s of the chip", ".0f", 1e-12),
        ),
        latency,
        gpu=False,
        headline=chained,
    ),
    Exhibit(
        "raihan-correlation",
        "figs. 15–17, Table I: the model",
        "Predicted against measured",
        "The paper correlates instructions a cycle of a simulator with those of the chip; here, "
        "times of products by the time model with measured ones.",
        (
            *(NAME, M, K, N, Column("batch", "of them")),
            *(MEASURED, PREDICTED, Column("off", "off by", "+.1%")),
        ),
        correlation,
        Lines(MEASURED, PREDICTED, joined=False),
        (Published("correlation of instructions a cycle", "99.6 %", ABSTRACT),),
        headline=correlated,
    ),
)

PAPER = Paper(
    "raihan",
    "Raihan et al.",
    "Raihan, Goli and Aamodt: Modeling Deep Learning Accelerator Enabled GPUs, ISPASS 2019, "
    "arXiv:1811.08309",
    "a Titan V and an RTX 2080",
    EXHIBITS,
)
