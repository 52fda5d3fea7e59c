"""The reference backend, adding up floating-point slices as a chip does."""

import numpy as np
import pytest

from mixpert_py.errors import DeviceError, PlanError
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.gpu.device import Absent, find
from mixpert_py.runtime.model.known_devices import find as model_of
from mixpert_py.runtime.model.numerics import Accumulation, Array, accumulate
from mixpert_py.runtime.reference import reference
from tests.runtime.emulations import EMULATIONS

H200 = model_of("h200").accumulation
A100 = model_of("a100").accumulation
V100 = model_of("v100").accumulation
FLOATING = sorted(name for name, scheme in EMULATIONS.items() if not scheme.exact)


def operands(m: int, k: int, n: int) -> tuple[Array, Array]:
    random = np.random.default_rng(1)
    return (
        random.standard_normal((m, k), np.float32),
        random.standard_normal((k, n), np.float32),
    )


def error(value: Array, a: Array, b: Array) -> float:
    exact = a.astype(float) @ b.astype(float)
    return float(np.linalg.norm(value - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("k", [1, 16, 100, 300])
def test_one_slice_is_a_chain_of_instructions_promoted_every_two(k: int) -> None:
    a, b = operands(5, k, 7)
    total = np.zeros((5, 7), np.float32)
    x, y = (np.pad(v.astype(np.float16), ((0, 0), (0, -k % 32))) for v in (a, b.T))
    for start in range(0, k, 32):
        first, second = slice(start, start + 16), slice(start + 16, start + 32)
        zero = np.zeros_like(total)
        half = accumulate(x[:, first], y[:, first].T, zero, H200.float16)
        total += accumulate(x[:, second], y[:, second].T, half, H200.float16)
    found = reference.multiply(a, b, EMULATIONS["fp16"], like=H200).value
    np.testing.assert_array_equal(found, total)


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


@pytest.mark.parametrize("k", [5, 64, 100, 300])
def test_a_deferred_accumulator_is_added_once(k: int) -> None:
    """Of hi · hi the sums of 64 of K enter the total, of hi · lo and lo · hi that of all."""
    a, b = operands(6, k, 5)
    scheme = EMULATIONS["fp16x3"]
    left, right = reference.pack(a, b, scheme, "loss")
    total, late = np.zeros((6, 5), np.float32), np.zeros((6, 5), np.float32)
    for x, y in zip(left.slices, right.slices, strict=True):
        (hi_a, lo_a), (lo_b, hi_b) = (
            [z[:, i].astype(np.float16) for i in range(2)] for z in (x, y)
        )
        part = np.zeros_like(total)
        for start in range(0, hi_a.shape[1], 16):
            some = slice(start, start + 16)
            part = accumulate(hi_a[:, some], hi_b[:, some].T, part, H200.float16)
            late = accumulate(hi_a[:, some], lo_b[:, some].T, late, H200.float16)
            late = accumulate(lo_a[:, some], hi_b[:, some].T, late, H200.float16)
        total += part
    total += late * np.float32(2.0**-12)
    exponents = left.exponents + right.exponents.T
    found = reference.multiply(a, b, scheme, like=H200).value
    np.testing.assert_array_equal(found, np.ldexp(total, exponents))


def test_subnormal_halves_are_told_from_normal_singles() -> None:
    """They have the exponent of the smallest normal half, and what is added to them loses by it."""
    a, b = np.zeros((1, 16), np.float32), np.zeros((16, 1), np.float32)
    a[0, :2], b[:2, 0] = (2.0**-24, 2.0**-14), (2.0**15, 2.0**-14)
    found = reference.multiply(a, b, EMULATIONS["fp16"], like=H200).value
    assert found[0, 0] == 2.0**-9
    zero = np.zeros((1, 1), np.float32)
    assert accumulate(a, b, zero, Accumulation(16, 25))[0, 0] == 2.0**-9 + 2.0**-28


def test_integers_are_the_same_on_every_chip() -> None:
    a, b = operands(20, 300, 20)
    scheme = EMULATIONS["int8x6"]
    plain, like = (reference.multiply(a, b, scheme, like=chip).value for chip in (None, A100))
    np.testing.assert_array_equal(plain, like)


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
        ("references", PlanError, "known: reference, cuda, reference:DEVICE"),
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
