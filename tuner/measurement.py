"""What one run of the program under a plan showed, and the argument that makes such runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run, or the middle of several. `problem` says why a run failed; its error is NaN then.

    seconds: the whole program; site_seconds: site id → time in that product, all calls together.
    Both may be cost units of a device model: the search only compares them with each other.
    A site that did not run is absent. not_taken: sites none of whose calls took the planned scheme
    (dtype, size or device did not suit it): their times say nothing about it. outliers: site id →
    largest share of its operands that left the slices. errors: observed value → its own error, of
    which `error` is what counts.
    """

    seconds: float
    error: float
    site_seconds: Mapping[str, float]
    problem: str | None = None
    not_taken: frozenset[str] = frozenset()
    outliers: Mapping[str, float] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)


class Measure(Protocol):
    """Runs the program under a plan: site id → scheme name.

    A program that fails, hangs or leaves nothing to compare is a Measurement with a problem, not
    an exception.
    """

    def __call__(self, plan: Mapping[str, str], /) -> Measurement: ...


Expect = Callable[[Sequence[Mapping[str, str]]], None]
"""Is told which plans may be asked for next, the likeliest first; what it was told before is off.

Whoever makes runs several at a time makes them while it waits. The search goes by none of it until
it asks for that plan.
"""
