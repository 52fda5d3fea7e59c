"""The default's contract: as accurate as an FP32 product, on every input."""

from typing import Any

import numpy as np
import pytest

from mixpert_py import matmul
from tests.benchmarks.contract import Sums, errors
from tests.benchmarks.judgement import Exact
from tests.every_check import some
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


@pytest.mark.parametrize("seed", some(range(3)))
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


@pytest.mark.parametrize("k", [48, 64, 128])
@pytest.mark.parametrize("family", [name for name in ALL if name != "constant"])
def test_no_short_sum_is_worse_where_tensor_cores_truncate(family: str, k: int) -> None:
    """As an H200 adds. Constant operands make one sum, of which the chain's luck decides."""
    a, b = (x.astype(np.float32) for x in ALL[family](np.random.default_rng(0), 48, k, 48))
    value = matmul(a, b, scheme="faithful", backend="reference:h200")
    assert not beyond(a, b, value).any()
    exact = Exact.of(a, b)
    ratios = errors(exact, value).over(errors(exact, chained(a, b)), Sums.of(exact).floor)
    assert ratios.frobenius <= 1


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


def block_cases(k: int) -> Any:
    """What is small in both operands meets, what is large meets zeros."""
    for small in (2.0**-24, 2.0**-28, 2.0**-29, 2.0**-30, 2.0**-32, 2.0**-35, 2.0**-39):
        for times in (1.0, 1 + 2.0**-11 + 2.0**-23):
            a, b = np.zeros((1, k), np.float32), np.zeros((k, 1), np.float32)
            a[0, 0] = b[1, 0] = 1
            a[0, 2:] = b[2:, 0] = small * times
            yield a, b
            n = 2.0 ** (14 - (k.bit_length() - 1))
            a[0, 2:] = b[2:, 0] = (n + 0.5) * 2.0**-38 * times
            yield a, b


@pytest.mark.parametrize(
    ("k", "backend"),
    [(k, "reference") for k in (3, 64, 65, 128, 255, 512, 4096, 32768)]
    + [(k, "reference:h200") for k in (3, 64, 128, 600)],
)
def test_small_entries_that_meet_while_large_ones_meet_zeros(k: int, backend: str) -> None:
    for a, b in some(block_cases(k)):
        assert not beyond(a, b, matmul(a, b, scheme="faithful", backend=backend)).any()
        if k >= 512:
            value = matmul(a, b, scheme="faithful", backend=backend)
            error = abs(value - a.astype("d") @ b.astype("d"))
            assert (error <= k * UNIT * (a.astype("d") @ b.astype("d")) + k * 2.0**-149).all()
