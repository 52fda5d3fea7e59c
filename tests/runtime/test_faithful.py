"""The default's contract: as accurate as an FP32 product, on every input."""

from typing import Any

import numpy as np
import pytest

from mixpert_py import matmul
from mixpert_py.bench.contract import Sums, errors
from mixpert_py.bench.judgement import Exact
from mixpert_py.runtime.emulation import float_slices
from mixpert_py.runtime.schemes.fp16x3 import SLICES, SPAN
from tests.runtime.chains import chained
from tests.runtime.families import EVERYDAY, FAMILIES

ALL = {**FAMILIES, **EVERYDAY}
UNIT = 2.0**-24


def faithful(a: Any, b: Any) -> Any:
    return matmul(a, b, scheme="faithful", backend="reference")


def beyond(a: Any, b: Any, value: Any) -> Any:
    """Elements that break |E|ij ≤ (12 + K) u (|A||B|)ij + K · 2^-149, of those that fit float32."""
    k = a.shape[1]
    exact, size = a.astype("d") @ b.astype("d"), abs(a).astype("d") @ abs(b).astype("d")
    fits = size < np.finfo(np.float32).max * (1 - 2.0**-20)
    allowed = (12 + k) * UNIT * size + k * 2.0**-149
    with np.errstate(invalid="ignore"):
        return fits & ~(abs(value.astype("d") - exact) <= allowed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("family", ALL)
def test_no_family_is_worse_than_a_sequential_chain(family: str, seed: int) -> None:
    a, b = (x.astype(np.float32) for x in ALL[family](np.random.default_rng(seed), 32, 300, 24))
    value = faithful(a, b)
    assert not beyond(a, b, value).any()
    exact = Exact.of(a, b)
    ours, chain = errors(exact, value), errors(exact, chained(a, b))
    ratios = ours.over(chain, Sums.of(exact).floor)
    assert ratios.frobenius <= 1
    assert ratios.componentwise <= 1


@pytest.mark.parametrize("seed", range(8))
def test_random_pairs_of_families_under_any_scaling(seed: int) -> None:
    rng, names = np.random.default_rng(seed), list(ALL)
    for _ in range(40):
        m, k, n = (int(2 ** rng.uniform(0, 8)) for _ in range(3))
        left, right = rng.choice(names, 2)
        a = np.asarray(ALL[left](rng, m, k, n)[0], float) * 10 ** rng.uniform(-8, 8, (m, 1))
        b = np.asarray(ALL[right](rng, m, k, n)[1], float) * 10 ** rng.uniform(-8, 8, n)
        d = 10 ** rng.uniform(-8, 8, k)
        with np.errstate(over="ignore", under="ignore"):
            a, b = (a * d).astype(np.float32), (b / d[:, None]).astype(np.float32)
        if np.isfinite(a).all() and np.isfinite(b).all():
            assert not beyond(a, b, faithful(a, b)).any(), (left, right, m, k, n)


def test_adversarial_mantissas() -> None:
    for x in (1 + 4093 * 2.0**-23, 1 + 4095 * 2.0**-23, 2 - 2.0**-23):
        for k in (1, 2, 15, 64, 1000):
            a, b = np.full((1, k), x, np.float32), np.full((k, 1), x, np.float32)
            assert not beyond(a, b, faithful(a, b)).any()


def test_a_finite_product_stays_finite() -> None:
    largest = np.array([[np.finfo(np.float32).max]])
    assert faithful(largest, np.ones((1, 1), np.float32)) == largest


@pytest.mark.parametrize("k", [2, 64, 1000])
def test_rows_leave_where_they_span_too_much(k: int) -> None:
    limit = SPAN + k.bit_length() - 1
    x = np.zeros((3, k), np.float32)
    x[:, 0] = 1
    x[:, 1] = 2.0 ** -(limit - 1), 2.0**-limit, 0
    made = float_slices.split(x, SLICES, k, k)
    assert made.outlier[:, 0].tolist() == [False, True, False]
