"""A way to multiply two arrays that is measured, whole and in its parts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from mixpert_py.bench.arrays import Array
from mixpert_py.runtime.gpu.event_clock import Call


@dataclass(frozen=True, slots=True)
class Parts:
    """A product ready to be called. packing, gemm: its two parts alone, where it has them."""

    whole: Call
    packing: Call | None = None
    gemm: Call | None = None


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to multiply float32 operands. prepare: a (…, m, k), b (…, k, n) → its calls."""

    name: str
    kind: Literal["scheme", "vendor"]
    prepare: Callable[[Array, Array], Parts]


def calls(parts: dict[str, Parts]) -> dict[str, Call]:
    """Every call there is, by "name", "name packing" and "name gemm"."""
    found: dict[str, Any] = {}
    for name, part in parts.items():
        found[name] = part.whole
        if part.packing is not None:
            found[f"{name} packing"] = part.packing
        if part.gemm is not None:
            found[f"{name} gemm"] = part.gemm
    return found
