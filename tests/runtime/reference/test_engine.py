"""Products of slices by definition, slices of floats, and what packed rows and tiles leave out."""

import numpy as np
import pytest

from mixpert_py.errors import DeviceError, PlanError
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.backends import BACKENDS
from mixpert_py.runtime.gpu.device import Absent, find
from mixpert_py.runtime.model.device_model import Accumulation
from mixpert_py.runtime.model.device_model import find as model_of
from mixpert_py.runtime.reference import reference
from mixpert_py.runtime.reference.engine import accumulate
from mixpert_py.runtime.reference.reference import ReferenceProduct, multiply
from mixpert_py.runtime.reference.slices import Packed, times_power_of_two
from mixpert_py.runtime.reference.slices import into_floats as split
from mixpert_py.runtime.splitter import BF16, FP16, TF32, FloatSlices
from tests.runtime.emulations import EMULATIONS, kept, with_block
from tests.runtime.families import FAMILIES, Array, crowded, normal


def balanced(x: Array, count: int, block: int) -> tuple[Array, Array, Array]:
    """Digits (count, rows, k) int64, and e and g (rows, blocks), by the definition.

    Up to three digits are fitted. Not `frexp` but logarithms find e; no largest entry here is so
    near a power of two that they would not.
    """
    rows, k = x.shape
    real = x.dtype.type
    parts = x.reshape(rows, k // block, block)
    largest = np.abs(parts).max(axis=2)
    e = np.floor(np.log2(largest)).astype(np.int32) + 1
    g = np.full(largest.shape, 256, x.dtype)
    if count < 4:
        g = np.floor(np.ldexp(largest, -e) * real(257.25)) + real(1)
    else:
        wide = np.ldexp(largest.astype(np.float64), 8 * count - 1 - e)
        e = e + (np.rint(wide) > 127 * (256**count - 1) // 255)
    scaled = np.ldexp(parts, (8 * count - 1 - e)[:, :, None])
    q = np.rint(scaled * (real(256) / g)[:, :, None]).astype(np.int64)
    digits = []
    for _ in range(count):
        d = (q + 128) % 256 - 128
        digits.append(d.reshape(rows, k))
        q = (q - d) // 256
    return np.array(digits[::-1]), e, g


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("name", "slices", "order"),
    [("int8x1", 1, 0), ("int8x3", 2, 1), ("int8x6", 3, 2), ("int8x8", 3, 3), ("int8x10", 4, 3)],
)
@pytest.mark.parametrize("block", [128, 768])
@pytest.mark.parametrize("subnormal", [False, True])
def test_int8_schemes_by_definition(
    dtype: type, name: str, slices: int, order: int, block: int, subnormal: bool
) -> None:
    """Bit for bit: int64 sums per order and block, the highest order first, times gA · gB, times
    a power of two, then promotion.
    """
    rng = np.random.default_rng(2)
    a, b = (
        rng.standard_normal((31, 768)).astype(dtype),
        rng.standard_normal((768, 17)).astype(dtype),
    )
    if subnormal:  # results: the power of two rounds them once more
        a, b = (np.ldexp(x, np.finfo(dtype).minexp // 2 - 8) for x in (a, b))
    left, ea, ga = balanced(a, slices, block)
    right, eb, gb = balanced(np.ascontiguousarray(b.T), slices, block)
    expected = np.zeros((31, 17), dtype)
    for t in range(768 // block):
        here = slice(t * block, (t + 1) * block)
        partial = np.zeros((31, 17), dtype)
        for total in range(order, -1, -1):
            exact = sum(
                left[i][:, here] @ right[total - i][:, here].T
                for i in range(slices)
                if 0 <= total - i < slices
            )
            partial = partial / dtype(256) + np.asarray(exact).astype(dtype)
        partial = partial * (ga[:, t][:, None] * gb[:, t][None, :])
        expected += np.ldexp(partial, (ea[:, t][:, None] - 15) + (eb[:, t][None, :] - 15))
    value = multiply(a, b, with_block(EMULATIONS[name], block)).value
    np.testing.assert_array_equal(value, expected)
    assert (0 < np.abs(value).max() < np.finfo(dtype).smallest_normal) == subnormal


def test_mixpert_by_definition() -> None:
    """Tiles of 16 × 32 and 32 × 8, magnitudes at 2^(emax − 20), eight terms, FP32 promotion."""
    rng = np.random.default_rng(3)
    a = rng.standard_normal((32, 96)).astype(np.float32)
    b = rng.standard_normal((96, 16)).astype(np.float32)
    expected = np.zeros((32, 16), np.float32)
    for t in range(0, 96, 32):
        for i in range(0, 32, 16):
            for j in range(0, 16, 8):
                tile_a, tile_b = a[i : i + 16, t : t + 32], b[t : t + 32, j : j + 8]
                (x, ea), (y, eb) = sevens(tile_a), sevens(tile_b)
                partial = np.zeros((16, 8), np.float32)
                for order in (3, 2, 1, 0):
                    pairs = [(p, order - p) for p in range(3) if 0 <= order - p < 3]
                    exact = sum(x[p] @ y[q] for p, q in pairs)
                    partial = partial / np.float32(128) + np.asarray(exact).astype(np.float32)
                expected[i : i + 16, j : j + 8] += np.ldexp(partial, ea + eb - 12)
    np.testing.assert_array_equal(multiply(a, b, EMULATIONS["mixpert-IV"]).value, expected)


def sevens(tile: Array) -> tuple[list[Array], int]:
    emax = int(np.frexp(np.abs(tile).max())[1]) - 1
    emax += bool(np.rint(np.ldexp(np.abs(tile).max(), 20 - emax)) == 2**21)
    q = np.rint(np.ldexp(np.abs(tile.astype(np.float64)), 20 - emax)).astype(np.int64)
    sign = np.sign(tile).astype(np.int64)
    return [sign * (q >> 14), sign * (q >> 7 & 127), sign * (q & 127)], emax


def test_legemm_divides_once_at_the_end() -> None:
    """The cross terms' accumulator carries 2^10 until every chunk of K is in."""
    rng = np.random.default_rng(4)
    a, b = (rng.uniform(0.5, 1, shape).astype(np.float32) for shape in ((6, 512), (512, 5)))
    (ah, al), (bh, bl) = (bit_cut(x) for x in (a, b))
    cross = high = np.zeros((6, 5), np.float32)
    for c in (slice(0, 256), slice(256, 512)):
        cross = cross + np.hstack([ah[:, c], al[:, c]]) @ np.vstack([bl[c], bh[c]])
        high = high + ah[:, c] @ bh[c]
    expected = cross * np.float32(2.0**-10) + high
    value = multiply(a, b, EMULATIONS["legemm"]).value
    # BLAS may add within a chunk in another order for another layout of the operands.
    np.testing.assert_allclose(value, expected, rtol=2e-6)


def bit_cut(x: Array) -> tuple[Array, Array]:
    high = (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    low = (x - high) * np.float32(1024)
    return high, (low.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


@pytest.mark.parametrize("name", ["int8x6", "int8x10"])
def test_sums_longer_than_int32_holds(name: str) -> None:
    """Past 2^31 the partial sums of one exponent block are promoted, none is lost."""
    k = 40_000
    a, b = np.full((2, k), np.float32(0.99)), np.full((k, 3), np.float32(0.99))
    value = multiply(a, b, with_block(EMULATIONS[name], k)).value
    np.testing.assert_allclose(value, k * float(np.float32(0.99)) ** 2, rtol=3e-7)


H200 = model_of("h200").accumulation


def operands(m: int, k: int, n: int) -> tuple[Array, Array]:
    random = np.random.default_rng(1)
    return (
        random.standard_normal((m, k), np.float32),
        random.standard_normal((k, n), np.float32),
    )


def error(value: Array, a: Array, b: Array) -> float:
    exact = a.astype(float) @ b.astype(float)
    return float(np.linalg.norm(value - exact) / np.linalg.norm(exact))


def test_terms_follow_each_other_within_an_instructions_depth() -> None:
    a, b = operands(6, 32, 6)
    scheme = EMULATIONS["egemm"]
    hi_a, hi_b = a.astype(np.float16), b.astype(np.float16)
    lo_a, lo_b = (a - hi_a).astype(np.float16), (b - hi_b).astype(np.float16)
    slices = {0: (hi_a, hi_b), 1: (lo_a, lo_b)}
    total = np.zeros((6, 6), np.float32)
    for start in (0, 16):
        step = slice(start, start + 16)
        for term in scheme.terms:
            x, y = slices[term.left][0], slices[term.right][1]
            total = accumulate(x[:, step], y[step], total, H200.float16)
    np.testing.assert_array_equal(reference.multiply(a, b, scheme, like=H200).value, total)


def test_subnormal_halves_are_told_from_normal_singles() -> None:
    """They have the exponent of the smallest normal half, and what is added to them loses by it."""
    a, b = np.zeros((1, 16), np.float32), np.zeros((16, 1), np.float32)
    a[0, :2], b[:2, 0] = (2.0**-24, 2.0**-14), (2.0**15, 2.0**-14)
    found = reference.multiply(a, b, EMULATIONS["fp16"], like=H200).value
    assert found[0, 0] == 2.0**-9
    zero = np.zeros((1, 1), np.float32)
    assert accumulate(a, b, zero, Accumulation(16, 25))[0, 0] == 2.0**-9 + 2.0**-28


@pytest.mark.parametrize(("name", "element"), [("tf32x3", "tf32"), ("int8x6", "int8")])
def test_a_chip_that_does_not_multiply_the_element_is_an_error(name: str, element: str) -> None:
    a, b = operands(4, 4, 4)
    said = f"{name!r}: the device model says nothing of {element} sums"
    with pytest.raises(DeviceError, match=said):
        matmul(a, b, scheme=name, backend="reference:v100")


def test_the_backend_names_the_chip() -> None:
    a, b = operands(30, 200, 20)
    plain = matmul(a, b, scheme="fp16x3", backend="reference")
    like = matmul(a, b, scheme="fp16x3", backend="reference:h200")
    np.testing.assert_array_equal(plain, reference.multiply(a, b, EMULATIONS["fp16x3"]).value)
    np.testing.assert_array_equal(
        like, reference.multiply(a, b, EMULATIONS["fp16x3"], like=H200).value
    )
    assert (plain != like).any()


@pytest.mark.parametrize(
    ("backend", "kind", "said"),
    [
        ("reference:abacus", DeviceError, "no device model is known for 'abacus'"),
        ("references", PlanError, f"known: {', '.join(BACKENDS)}, reference:DEVICE"),
    ],
)
def test_what_is_no_backend(backend: str, kind: type[Exception], said: str) -> None:
    a, b = operands(2, 2, 2)
    with pytest.raises(kind, match=said):
        matmul(a, b, scheme="fp16", backend=backend)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["fp16", "fp16x3", "egemm", "markidis-ab", "bf16x6", "tf32x3"])
@pytest.mark.parametrize("shape", [(257, 300, 129), (256, 1024, 256)])
def test_a_product_on_the_gpu_is_the_same_bits(name: str, shape: tuple[int, int, int]) -> None:
    """Schemes of one accumulator; of more, kernels add them in other orders."""
    found = find()
    assert not isinstance(found, Absent)
    try:
        model_of(found.name)
    except DeviceError as error:
        pytest.skip(str(error))
    a, b = operands(*shape)
    like = matmul(a, b, scheme=name, backend=f"reference:{found.name}")
    np.testing.assert_array_equal(matmul(a, b, scheme=name, backend="cuda"), like)


IN_RANGE = ["normal", "spread 1", "half's low range", "below half's range", "ties", "integers"]


def parts(packed: Packed, splitter: FloatSlices) -> Array:
    """(count, rows, k) float32 from one chunk."""
    rows = packed.slices.shape[1]
    return packed.slices.reshape(rows, splitter.count, -1).transpose(1, 0, 2)


def operand(family: str, dtype: type) -> Array:
    return FAMILIES[family](np.random.default_rng(1), 30, 60, 1)[0].astype(dtype)


@pytest.mark.parametrize("family", IN_RANGE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_half_rounds_as_numpy_does(family: str, dtype: type) -> None:
    x, splitter = operand(family, dtype), FloatSlices(FP16, 2)
    high, low = parts(split(x, splitter, 60, 60), splitter)
    np.testing.assert_array_equal(high, x.astype(np.float16))
    rest = x.astype(np.float64) - high
    np.testing.assert_array_equal(low, rest.astype(np.float16))


@pytest.mark.parametrize("family", IN_RANGE)
def test_truncation_never_grows(family: str) -> None:
    x, splitter = operand(family, np.float64), FloatSlices(FP16, 1, rounding="zero")
    (cut,) = parts(split(x, splitter, 60, 60), splitter)
    nearest = x.astype(np.float16)
    towards_zero = np.where(
        np.abs(nearest.astype(np.float64)) > np.abs(x),
        np.nextafter(nearest, np.float16(0)),
        nearest,
    )
    np.testing.assert_array_equal(cut, towards_zero)


@pytest.mark.parametrize(("element", "spare"), [(BF16, 16), (TF32, 13)])
@pytest.mark.parametrize("family", ["normal", "spread 4", "ties", "scaled inside"])
def test_wide_elements_round_to_nearest_even(element: object, spare: int, family: str) -> None:
    assert element in (BF16, TF32)
    splitter = FloatSlices(BF16 if element == BF16 else TF32, 1)
    x = operand(family, np.float32)
    bits = x.view(np.uint32).astype(np.uint64)
    half = (1 << (spare - 1)) - 1 + (bits >> spare & 1)
    expected = ((bits + half) >> spare << spare).astype(np.uint32).view(np.float32)
    (value,) = parts(split(x, splitter, 60, 60), splitter)
    np.testing.assert_array_equal(value, expected)


def test_rows_beyond_the_range_leave() -> None:
    x = np.ones((4, 5))
    x[1, 1], x[2, 2], x[3, 3] = 65504.0, 65505.0, np.inf
    packed = split(x, FloatSlices(FP16, 1), 5, 5)
    assert packed.outlier[:, 0].tolist() == [False, False, True, False]
    assert packed.nonfinite.tolist() == [False, False, False, True]
    assert not packed.slices[:, 2:].any()


@pytest.mark.parametrize(
    ("value", "powers", "expected"),
    [
        (1.5, (10, -3), 1.5 * 2.0**7),
        (1.5, (200, -190), 1.5 * 2.0**10),
        (1.5, (-200, 199), 0.75),
        (2.0**24 - 1, (-300, 276), 1 - 2.0**-24),
        (2.0**24 - 1, (120, -119), 2.0**25 - 2),
        (1 + 2.0**-23, (-127, 127), 1 + 2.0**-23),
        (1.0, (-100, -60), 0.0),
        (3.0, (-90, -60), 2.0**-148),
    ],
)
def test_powers_of_two_are_applied_at_once(
    value: float, powers: tuple[int, int], expected: float
) -> None:
    x = np.full((2, 3), value, np.float32)
    left, right = np.full((2, 1), powers[0], np.int32), np.full(3, powers[1], np.int32)
    with np.errstate(under="ignore"):
        assert times_power_of_two(x, left, right) is x
    np.testing.assert_array_equal(x, np.float32(expected))


def lossy_rows() -> tuple[Array, Array]:
    """A row of A and a column of B with one large entry among thousands of half a unit.

    0.5 has the unit 129 / 256 · 2^-23.
    """
    rng = np.random.default_rng(3)
    a, b = normal(rng, 20, 8192, 12)
    half = 0.49 * 129 / 256
    a[3] = np.ldexp(rng.choice([half, -half], 8192), -23)
    b[:, 5] = np.ldexp(rng.choice([half, -half], 8192), -23)
    a[3, 7] = b[1000, 5] = 0.5
    return a, b


def outliers(product: ReferenceProduct) -> tuple[int, int]:
    """The rows of A and the columns of B that left the slices, wholly or in part."""
    left, right = (int(it.outlier.any(axis=1).sum()) for it in (product.left, product.right))
    return left, right


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lossy_rows_leave_and_come_back_in_the_results_precision(dtype: type) -> None:
    a, b = (x.astype(dtype) for x in lossy_rows())
    product = multiply(a, b, with_block(EMULATIONS["int8x6"], 8192))
    assert outliers(product) == (1, 1)
    assert product.outliers == pytest.approx(2 / 32)
    exact = a.astype(np.float64) @ b
    error = np.abs(product.value - exact)
    whole = multiply(a, b, with_block(kept(EMULATIONS["int8x6"]), 8192))
    assert whole.outliers == 0
    worse = np.abs(whole.value - exact)
    better = 4 if dtype is np.float64 else 1  # a chain of 8192 in FP32 rounds as often
    assert worse[3].max() > better * error[3].max()
    assert worse[:, 5].max() > better * error[:, 5].max()
    others = np.ix_(np.arange(20) != 3, np.arange(12) != 5)
    np.testing.assert_array_equal(product.value[others], whole.value[others])


@pytest.mark.parametrize(
    ("block", "leaves", "dropped"),
    [
        (None, True, 1.96),
        (1024, True, 0.98),  # in one block of two the digits are crowded
        (128, False, 0.12),
    ],
)
def test_rows_whose_dropped_terms_would_matter_leave(
    block: int | None, leaves: bool, dropped: float
) -> None:
    """`dropped` is what the six terms would lose, of what grade B allows."""
    rng = np.random.default_rng(7)
    a, b = (x.astype(np.float32) for x in normal(rng, 20, 2048, 12))
    row, column = crowded(rng, 1, 100, 1)  # both large entries in one block
    a[3], b[:, 5] = row[0].min(), column.min()
    a[3, :100], b[:100, 5] = row[0], column[:, 0]
    scheme = EMULATIONS["int8x6"]
    product = multiply(a, b, with_block(scheme, block))
    whole = multiply(a, b, with_block(kept(scheme), block))
    exact = a.astype(np.float64) @ b
    allowed = 2048 * 2.0**-24 * np.linalg.norm(a[3]) * np.linalg.norm(b[:, 5])
    assert exact[3, 5] - whole.value[3, 5] == pytest.approx(dropped * allowed, rel=0.05)
    assert outliers(product) == (leaves, leaves)
    if leaves:
        assert abs(product.value[3, 5] - exact[3, 5]) < 0.01 * allowed


def test_tiles_leave_one_by_one() -> None:
    a, b = (x.astype(np.float32) for x in normal(np.random.default_rng(4), 48, 96, 24))
    a[16:32, 32:64] = b[64:, 8:16] = 0.49 * 2.0**-20  # just not half a last digit, beside 1
    a[20, 40] = b[70, 9] = 1.0
    product = multiply(a, b, EMULATIONS["mixpert-IV"])
    assert outliers(product) == (16, 8)  # rows of one tile each
    exact, size = a.astype(np.float64) @ b, np.abs(a) @ np.abs(b)
    assert (np.abs(product.value - exact) <= 2.0**-19 * size).all()


@pytest.mark.parametrize(("count", "leaves"), [(60, False), (75, True)])
def test_a_tile_leaves_from_its_limit_on(count: int, leaves: bool) -> None:
    """It may lose 2^-18 of its norm: 66 entries of 0.49 units of 2^-20 beside 1, and no more."""
    a = np.zeros((16, 32), np.float32)
    a.flat[1 : 1 + count] = 0.49 * 2.0**-20
    a[0, 0] = 1
    product = multiply(a, np.eye(32, dtype=np.float32), EMULATIONS["mixpert-IV"])
    assert outliers(product)[0] == 16 * leaves
