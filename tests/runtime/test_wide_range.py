"""The scheme of small products, and of those that `faithful` cannot hold: which rows it holds,
whatever they span, and how accurate it is.
"""

import numpy as np
import pytest

from mixpert_py.runtime.model.known_devices import model_of
from mixpert_py.runtime.reference import float_slices
from mixpert_py.runtime.reference.reference import multiply
from mixpert_py.runtime.schemes.wide_range import BF16_SLICES, WHOLE_SLICES, WIDER
from mixpert_py.runtime.splitter import FloatSlices
from tests.benchmarks.contract import Sums, allowed, errors
from tests.benchmarks.judgement import Exact
from tests.every_check import sweep
from tests.runtime.chains import chained
from tests.runtime.families import EVERYDAY, FAMILIES

LIKE = {"FP32 sums": None, "an H200": model_of("h200").accumulation}


def leaving(x: np.ndarray, slices: FloatSlices) -> list[bool]:
    found: list[bool] = (
        float_slices.split(x, slices, 8, -(-x.shape[1] // 8) * 8).outlier[:, 0].tolist()
    )
    return found


def test_rows_below_2_20_stay_and_those_from_2_62_on_leave() -> None:
    tiny = 2.0**-149
    rows = [
        *([2.0**19, tiny], [2.0**20 * (1 - 2.0**-24), tiny], [2.0**20, tiny]),
        *([2.0**62 * (1 - 2.0**-24), 1.0], [2.0**62, 2.0**62], [0.0, tiny], [0.0, 0.0]),
    ]
    x = np.zeros((len(rows), 8))
    x[:, 2:4] = rows
    single = x.astype(np.float32)
    assert leaving(single, WHOLE_SLICES) == [False, False, True, False, True, False, False]
    # float64's numbers are no multiples of 2^-149: there, what a row spans decides, and
    # elsewhere too but for large products by `faithful`.
    by_span = [True, True, True, False, False, False, False]
    assert leaving(x, WHOLE_SLICES) == leaving(single, BF16_SLICES) == by_span


def meeting(k: int, other: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A's largest entries, near 2^20, meet zeros, and so do B's, near 2^other; small ones meet."""
    a, b = (np.ldexp(rng.uniform(1, 2, shape), -1) for shape in ((6, k), (k, 6)))
    a[:, 1], b[0] = 0, 0
    sizes = np.array([20, -20, -60, -100, -130, -147])
    a[:, 0] = np.ldexp(a[:, 0], 20)
    a[:, 2:] = np.ldexp(a[:, 2:], sizes[:, None])
    b[1] = np.ldexp(b[1], other)
    b[2:] = np.ldexp(b[2:], other - np.array([0, 20, 40, 60, 80, 93]))
    return a.astype(np.float32), b.astype(np.float32)


@pytest.mark.parametrize("like", LIKE)
@pytest.mark.parametrize("other", [-60, 0, 20, 40, 62, 90, 127])
def test_small_entries_that_meet_small_ones(like: str, other: int) -> None:
    for k in (128, 600):
        a, b = meeting(k, other, np.random.default_rng(k))
        for x, y in ((a, b), (np.ascontiguousarray(b.T), np.ascontiguousarray(a.T))):
            value = multiply(x, y, WIDER, like=LIKE[like]).value
            exact, size = (
                p(x).astype(np.float64) @ p(y).astype(np.float64) for p in (np.positive, abs)
            )
            assert (abs(value - exact) <= allowed(k, size))[size < 2.0**128].all()


ALL = {**FAMILIES, **EVERYDAY}


@pytest.mark.parametrize(
    ("family", "k"),
    sweep([name for name in ALL if name != "constant"], [16, 48, 64, 256, 1024], together=1),
)
def test_no_family_is_worse_than_a_sequential_chain(family: str, k: int) -> None:
    """As an H200 adds. Of constant operands the chain's luck decides, as in `test_faithful`."""
    a, b = (x.astype(np.float32) for x in ALL[family](np.random.default_rng(0), 32, k, 24))
    with np.errstate(all="ignore"):
        value = multiply(a, b, WIDER, like=LIKE["an H200"]).value
    exact, size = (p(a).astype(np.float64) @ p(b).astype(np.float64) for p in (np.positive, abs))
    fits = size < 2.0**127
    assert (abs(value - exact) <= allowed(k, size))[fits].all()
    judged = Exact.of(a, b)
    ratios = errors(judged, value).over(errors(judged, chained(a, b)), Sums.of(judged).floor)
    assert ratios.frobenius <= 1
