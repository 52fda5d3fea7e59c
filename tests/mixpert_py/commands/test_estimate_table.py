"""The tables of an estimate, and the notes under them."""

import io
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest

from mixpert_py.commands import tables
from mixpert_py.tuner.prediction import PredictedGain
from mixpert_py.tuning.estimate import Estimate, EstimatedProduct

PRODUCT = EstimatedProduct(
    "m:f/matmul~1#0",
    "/home/m.py",
    12,
    "covariance[rows, :] @ weights.T",
    3,
    1.5,
    {"float32": 2e-7, "int8x6": 3e-7},
    {"here": {"float32": 1.8}, "H200": {"int8x6": 1.1}, "A100": {"int8x6": 1.4}, "T4": {}},
)
FOUND = Estimate(
    2.0,
    0.75,
    (PRODUCT,),
    (
        PredictedGain(None, 1.5, 1.0, {"m": "float32"}, error=2e-7),
        PredictedGain("H200", 1.05, 0.1, {"m": "int8x6"}, error=3e-7),
        PredictedGain("A100", 1.2, 0.2, {"m": "int8x6"}, error=3e-7),
        PredictedGain("T4", 1.0, 9.0, {}),
    ),
    0.0,
)

PRINTED = Path(__file__).with_name("estimate_tables.txt")


def estimates() -> dict[str, Estimate]:
    """Title → an estimate to print."""

    def of(product: dict[str, object], **changes: object) -> Estimate:
        return replace(FOUND, products=(replace(PRODUCT, **product),), **changes)

    slower, unknown = {"speeds": {"here": {"float32": 0.9}}}, {"speeds": {"here": {}}}
    small = {**unknown, "unsuited": "6 × 6 × 6 is too small"}
    return {
        "with a level": FOUND,
        "a product of a library": of({"path": "shapes/deep.py"}),
        "a short run of which a part is unknown": of({}, unmeasured=0.25, seconds=0.05),
        "with child processes and no gain": of(
            {}, children=0.5, places=(PredictedGain(None, 1.0, 1.0, {}),)
        ),
        "not faster": of(slower),
        "not measured": of(unknown),
        "too small": of(small),
        "a time without an error": of({"errors": {}}),
    }


def printed() -> str:
    """All estimates, each under its title, on terminals of 60 and of 80 columns."""
    parts = []
    for title, found in estimates().items():
        for width in (60, 80):
            with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as file:
                patch.delenv("FORCE_COLOR", raising=False)
                patch.setenv("COLUMNS", str(width))
                tables.print_estimate(found, "1e-5", "s.py")
            lines = [line.rstrip() for line in file.getvalue().splitlines()]
            assert max(map(len, lines)) <= width
            parts.append("\n".join([f"==== {title}, {width} columns", *lines, ""]))
    return "".join(parts)


def test_the_printed_estimates() -> None:
    """`python -m tests.mixpert_py.commands.test_estimate_table` writes the file anew."""
    assert printed().split("==== ") == PRINTED.read_text("utf-8").split("==== ")


if __name__ == "__main__":
    PRINTED.write_text(printed(), "utf-8")
