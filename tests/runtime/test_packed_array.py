"""Operands packed once: multiplied as the arrays would be, and nothing else fits in their place."""

from typing import Any

import numpy as np
import pytest

from mixpert_py.errors import PlanError, ShapeError
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.packed_array import PackedArray, pack
from mixpert_py.runtime.schemes import emulation_of
from mixpert_py.runtime.tracing.trace import Trace
from tests.runtime.gpu.fake import FakeGpu, ndarray


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> ndarray:
    return ndarray(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu()
    fake.install(monkeypatch)
    return fake


@pytest.fixture
def packs(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sides that were packed, one operand after the other."""
    sides: list[str] = []
    pack_one = FakeGpu.pack_one

    def counted(self: FakeGpu, x: Any, scheme: Any, which: str, *args: Any, **given: Any) -> Any:
        sides.append(which)
        return pack_one(self, x, scheme, which, *args, **given)

    monkeypatch.setattr(FakeGpu, "pack_one", counted)
    gpu.install(monkeypatch)
    return sides


@pytest.mark.parametrize("scheme", ["int8x6", "fp16x3", "mixpert-IV"])
@pytest.mark.parametrize(
    "shapes", [((5, 6), (6, 4)), ((6,), (6, 4)), ((3, 5, 6), (6, 4)), ((5, 6), (3, 6, 4))], ids=str
)
def test_the_right_operand(packs: list[str], scheme: str, shapes: Any) -> None:
    a, b = normal(*shapes[0]), normal(*shapes[1], seed=1)
    wanted = matmul(a, b, scheme=scheme, backend="cuda").get()
    packs.clear()
    handle = pack(b, scheme)
    assert (handle.shape, handle.dtype, handle.ndim) == (b.shape, b.dtype, b.ndim)
    for _ in range(2):
        result = matmul(a, handle, backend="cuda")
        np.testing.assert_array_equal(result.get(), wanted)
    assert packs[:3] == ["right", "left", "left"]


def test_the_left_operand_and_both(packs: list[str]) -> None:
    a, b = normal(5, 6), normal(6, 4, seed=1)
    wanted = matmul(a, b, scheme="int8x6", backend="cuda").get()
    packs.clear()
    left, right = pack(a, "int8x6", side="left"), pack(b, "int8x6")
    np.testing.assert_array_equal(matmul(left, b, backend="cuda").get(), wanted)
    np.testing.assert_array_equal(matmul(left, right, backend="cuda").get(), wanted)
    assert packs == ["left", "right", "right"]


@pytest.mark.usefixtures("gpu")
def test_the_scheme_in_force_is_packed_for() -> None:
    b = normal(6, 4)
    assert pack(b).scheme == "faithful"
    with use(Context(scheme="int8x3")):
        handle = pack(b)
    trace = Trace()
    with use(Context(scheme="int8x6", backend="cuda", trace=trace)):
        matmul(normal(5, 6), handle, site="s")
    assert trace.sites["s"].schemes == {"int8x3": 1}


@pytest.mark.parametrize(
    ("dtype", "scheme"), [("f", "faithful"), ("F", "faithful"), ("d", "crt"), ("D", "native")]
)
@pytest.mark.usefixtures("gpu")
def test_nothing_weaker_than_the_type_is_packed_for_unasked(dtype: str, scheme: str) -> None:
    x = np.eye(4, dtype=dtype)
    assert pack(x).scheme == scheme  # NumPy's is kept as it is
    if scheme != "crt":  # which looks at it
        handle = pack(ndarray(x))
        assert (handle.scheme, handle.packed is None) == (scheme, scheme == "native")


@pytest.mark.usefixtures("gpu")
def test_faithful_is_packed_for_any_number_of_rows(gpu: FakeGpu) -> None:
    a, b = normal(1200, 8), normal(8, 1200, seed=1)
    handle = pack(b)
    assert handle.packed.scheme == emulation_of("faithful")
    matmul(a, handle)
    matmul(a[:3], handle, backend="cuda")
    assert gpu.launches[-1] == (1, 3, 1200)


def test_a_pack_of_another_type_of_product_is_not_used(packs: list[str]) -> None:
    handle = pack(normal(6, 4), "int8x6")
    result = matmul(normal(5, 6, dtype=float), handle, backend="cuda")
    assert result.dtype == np.float64
    assert packs == ["right", "left", "right"]


@pytest.mark.parametrize("shape", [(0, 6, 4), (6, 0), (0, 4)], ids=str)
def test_nothing_is_packed_of_nothing(packs: list[str], shape: Any) -> None:
    handle = pack(normal(*shape), "int8x6")
    assert handle.packed is None
    assert not packs
    a = normal(*shape[:-2], 5, shape[-2])
    assert matmul(a, handle, backend="cuda").shape == (*shape[:-2], 5, shape[-1])


@pytest.mark.usefixtures("gpu")
def test_short_memory_leaves_the_pack_aside(gpu: FakeGpu) -> None:
    a, b = normal(600, 40), normal(40, 300, seed=1)
    handle = pack(b, "int8x6")
    wanted = matmul(a, handle, backend="cuda").get()
    gpu.launches.clear()
    gpu.memory = 150_000
    np.testing.assert_array_equal(matmul(a, handle, backend="cuda").get(), wanted)
    assert len(gpu.launches) > 1


@pytest.mark.parametrize("scheme", ["float32", "native", "float64"])
@pytest.mark.usefixtures("gpu")
def test_what_needs_no_pack_is_kept_as_it_is(scheme: str) -> None:
    a, b = normal(5, 6), normal(6, 4)
    handle = pack(b, scheme)
    assert handle.packed is None
    np.testing.assert_allclose(matmul(a, handle).get(), a.x @ b.x, rtol=1e-6)


@pytest.mark.parametrize("backend", [None, "reference"])
def test_without_a_gpu_the_array_is_multiplied(backend: str | None) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((5, 6)), rng.standard_normal((6, 4))
    handle = pack(b, "int8x6")
    assert isinstance(handle, PackedArray)
    result = matmul(a, handle, backend=backend)
    np.testing.assert_array_equal(result, matmul(a, b, scheme="int8x6", backend=backend))
    with use(Context()):
        for _ in range(2):
            np.testing.assert_array_equal(matmul(a, handle, site="s"), a @ b)
            np.testing.assert_array_equal(matmul(a, b, site="s"), a @ b)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"scheme": "int8x3"}, "packed for 'int8x6' cannot take 'int8x3'"),
        ({"block": 64}, "no block"),
    ],
)
@pytest.mark.usefixtures("gpu")
def test_a_wish_that_does_not_fit_is_an_error(given: Any, message: str) -> None:
    a, handle = normal(5, 6), pack(normal(6, 4), "int8x6")
    with pytest.raises(PlanError, match=message):
        matmul(a, handle, **given)
    assert matmul(a, handle, scheme="int8x6").shape == (5, 4)


@pytest.mark.usefixtures("gpu")
def test_the_wrong_side_is_an_error() -> None:
    a = normal(6, 6)
    with pytest.raises(PlanError, match="packed for the right stands on the left; pack it with"):
        matmul(pack(a), a)
    with pytest.raises(PlanError, match="unknown side 'top'; known: left, right"):
        pack(a, side="top")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="packed for 'int8x6' cannot take 'int8x8'"):
        matmul(pack(a, "int8x6", side="left"), pack(a, "int8x8"))


@pytest.mark.usefixtures("gpu")
def test_shapes_that_do_not_fit_fail_as_they_did() -> None:
    handle = pack(normal(6, 4), "int8x6")
    with pytest.raises(ValueError, match="mismatch"):
        matmul(normal(5, 7), handle)


@pytest.mark.usefixtures("gpu")
def test_what_cannot_be_packed() -> None:
    with pytest.raises(ShapeError, match=r"shape \(6,\): wanted a matrix"):
        pack(normal(6), "int8x6")
    with pytest.raises(TypeError, match="cannot pack int32: wanted float32, float64 or complex"):
        pack(ndarray(np.eye(3, dtype=np.int32)), "int8x6")
    with pytest.raises(PlanError, match="unknown scheme 'int9'"):
        pack(normal(6, 6), "int9")
