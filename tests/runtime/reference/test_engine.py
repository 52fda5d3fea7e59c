"""The engine: integer terms bit for bit, and the documented order of everything that rounds."""

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
from mixpert_py.runtime.reference.reference import multiply
from tests.runtime.emulations import EMULATIONS, with_block
from tests.runtime.families import Array


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
