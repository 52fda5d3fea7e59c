"""The profile of one operator: what the search knows of a call site before it changes anything."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Operator:
    """A call site as a node of the dependency graph.

    shapes: distinct (m, k, n) of its products; seconds: all its calls in the baseline, in the unit
    of Measurement.site_seconds; local_errors: scheme → relative Frobenius error against FP64 on
    the profiled operands; predicted: scheme → what `seconds` would be under it; locked: keeps the
    scheme that the search starts with.
    """

    id: str
    expression: str = ""
    line: int = 0
    calls: int = 0
    shapes: tuple[tuple[int, int, int], ...] = ()
    seconds: float = 0.0
    local_errors: Mapping[str, float] = field(default_factory=dict)
    predicted: Mapping[str, float] = field(default_factory=dict)
    locked: bool = False
