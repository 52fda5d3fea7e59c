"""The grades A, B and C of a matrix multiplication, from its operands and its result."""

from tests.benchmarks import judgement
from tests.benchmarks.judgement import Exact
from tests.runtime.families import Array


def grades(a: Array, b: Array, value: Array) -> str:
    """See `judgement.grades`."""
    return judgement.grades(Exact.of(a, b), value)
