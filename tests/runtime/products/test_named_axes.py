"""`einops_einsum`: patterns of names become np.einsum's subscripts; all else is einops's own."""

from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.products.einsum import einops_einsum
from mixpert_py.runtime.tracing.trace import Trace
from tests.runtime.without_gpu import SITE

A, B, C = np.random.default_rng(0).standard_normal((3, 4, 4))
CALLS: list[Any] = []


def einops(*operands: Any) -> Any:
    """Stand for einops.einsum, which makes a compact pattern and calls np.einsum."""
    *arrays, pattern = operands
    CALLS.append(pattern)
    names: dict[str, str] = {}
    compact = "".join(
        names.setdefault(word, chr(ord("a") + len(names))) if word.isidentifier() else word
        for word in pattern.replace(",", " , ").split()
    )
    return np.einsum(compact, *arrays)


def test_a_pattern_of_names_takes_the_scheme() -> None:
    for operands in ((A, B, "i k, k j -> i j"), (A, B, C, "i k, k j, j l -> i l")):
        wanted = einops(*operands)
        trace = Trace()
        with use(Context(scheme="int8x3", backend="reference", trace=trace)):
            result = einops_einsum(*operands, native=einops, site=SITE)
        assert trace.sites[SITE].schemes == {"int8x3": len(operands) - 2}
        assert 0 < np.abs(result - wanted).max() < 0.1
        with use(Context()):
            for _ in range(2):
                again = einops_einsum(*operands, native=einops, site=SITE)
                np.testing.assert_array_equal(again, wanted)


def test_other_operands_are_einopss_own() -> None:
    with use(Context(scheme="int8x3", backend="reference", trace=(trace := Trace()))):
        result = einops_einsum([[1.0]], B[:1], "i k, k j -> i j", native=einops, site=SITE)
        np.testing.assert_array_equal(result, B[:1])
        with pytest.raises(TypeError):
            einops_einsum(A, B, native=einops_of_two)
    assert not trace.sites


def einops_of_two(a: Any, b: Any) -> Any:
    raise TypeError("no pattern")
