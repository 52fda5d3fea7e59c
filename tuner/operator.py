"""The profile of one operator: what the search knows of a call site before it changes anything."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Operator:
    """A call site as a node of the dependency graph.

    shapes: distinct (m, k, n) of its products; seconds: all its calls in the baseline, in the unit
    of Measurement.site_seconds; local_errors: scheme → relative Frobenius error against FP64 on
    the profiled operands; predicted: scheme → what `seconds` would be under it; locked: keeps the
    scheme that the search starts with; sensitivity: the program's error per local error, as long as
    no run says otherwise.

    sampled: how many of the calls the profile looked into. Of those, the worst: spread: bits by
    which entries lie below the largest of their row of A or column of B, in the mean; int8_loss:
    bits by which int8x6 is expected to be further off than an FP32 product; cancellation:
    ‖|A| |B|‖F / ‖A B‖F, 1 where nothing cancels. transfer: seconds of the profile's calls that
    moving arrays took. fed_by: site → calls of the profile with an operand that was that site's
    result.
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
    sensitivity: float = 1.0
    sampled: int = 0
    spread: float = 0.0
    int8_loss: float = 0.0
    cancellation: float = 1.0
    transfer: float = 0.0
    fed_by: Mapping[str, int] = field(default_factory=dict)
