"""The accuracy-speed plane: where every contender stands at one shape, and which are dominated."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mixpert_py.bench.gemm.tables import Record

Sections = Mapping[str, Sequence[Record]]


@dataclass(frozen=True, slots=True)
class Point:
    """A contender. tflops: packing and casts included. error: Frobenius, on normal data."""

    name: str
    kind: str
    tflops: float
    error: float


def is_judged(sections: Sections) -> bool:
    """Return whether the results hold errors, and not speeds alone."""
    return any(name.startswith("accuracy") for name in sections)


def points(sections: Sections, size: int) -> list[Point]:
    """Contenders with a time and an error at size³, without FP64, whose error is 0."""
    errors = {
        row["name"]: float(row["frobenius"])
        for row in cubes(sections, "accuracy", size)
        if row["family"] == "normal"
    }
    return [
        Point(row["name"], row["kind"], row["tflops"], errors[row["name"]])
        for row in cubes(sections, "speed", size)
        if 0 < errors.get(row["name"], 0) < math.inf
    ]


def cubes(sections: Sections, kind: str, size: int) -> list[Record]:
    """The rows at size³ of sections of one kind, without failures."""
    return [
        row
        for name, rows in sections.items()
        for row in rows
        if name.startswith(kind) and row["m"] == row["k"] == row["n"] == size
        if "failed" not in row
    ]


def dominated(found: Iterable[Point]) -> dict[str, str]:
    """Name → a contender that is no slower and no less accurate: our fastest, else cuBLAS's."""
    found = list(found)
    beaten = {}
    for point in found:
        better = [
            other
            for other in found
            if other.tflops >= point.tflops
            and other.error <= point.error
            and (other.tflops, other.error) != (point.tflops, point.error)
        ]
        if better:
            beaten[point.name] = max(
                better, key=lambda other: (other.kind == "scheme", other.tflops)
            ).name
    return beaten


def sizes(sections: Sections) -> list[int]:
    """Every n of which the speed at n³ is known."""
    rows = [row for name, found in sections.items() if name.startswith("speed") for row in found]
    return sorted({row["n"] for row in rows if row["m"] == row["k"] == row["n"]})
