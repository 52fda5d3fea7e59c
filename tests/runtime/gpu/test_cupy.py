"""CuPy arrays and PyTorch's tensors take schemes, and mean what they meant."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.api import dot, dot_method, matmul
from mixpert_py.runtime.context import Context, current, use
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.tracing.trace import Trace

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

EDGE = 2048  # large enough to pay on any device


def normal(*shape: int, dtype: Any = "float32", seed: int = 0) -> Any:
    return cupy.random.default_rng(seed).standard_normal(shape, dtype=dtype)


def ran(product: Callable[..., Any], *operands: Any, **given: Any) -> tuple[Any, str, Any]:
    trace = Trace()
    with use(Context(scheme=given.pop("scheme", None), trace=trace)):
        result = product(*operands, site="s", **given)
    ((scheme, _),) = trace.sites["s"].schemes.items()
    return result, scheme, next(iter(trace.sites["s"].reasons), None)


@pytest.mark.parametrize(
    ("dtype", "scheme", "wanted"),
    [
        ("float32", None, "faithful"),
        ("float64", None, "native"),
        ("float32", "native", "native"),
        ("float32", "int8x6", "int8x6"),
        ("float64", "int8x6", "int8x6"),
        ("float64", "float32", "faithful"),
        ("float32", "float32", "float32"),
        ("float32", "float64", "float64"),
    ],
)
def test_every_spelling(dtype: str, scheme: str | None, wanted: str) -> None:
    a, b = normal(EDGE, EDGE, dtype=dtype), normal(EDGE, EDGE, dtype=dtype, seed=1)
    exact = a.astype("float64") @ b.astype("float64")
    out = cupy.empty_like(a)
    for product, given in (
        (matmul, {}),
        (matmul, {"native": cupy.matmul}),
        (matmul, {"native": np.matmul}),
        (matmul, {"native": cupy.matmul, "out": out}),
        (dot, {"native": cupy.dot}),
        (dot_method, {}),
    ):
        result, scheme_ran, reason = ran(product, a, b, scheme=scheme, **given)
        assert (scheme_ran, reason) == (wanted, None)
        assert type(result) is cupy.ndarray
        assert result.dtype == dtype
        assert float(cupy.linalg.norm(result - exact) / cupy.linalg.norm(exact)) < 1e-6
    assert bool((out == result).all())


def test_small_products_are_native() -> None:
    a = normal(32, 32)
    assert ran(matmul, a, a)[1:] == ("native", None)
    result, scheme, reason = ran(matmul, a, a, scheme="int8x6")
    assert (scheme, reason) == ("native", Reason.TOO_SMALL)
    cupy.testing.assert_array_equal(result, a @ a)


def test_other_types_are_native() -> None:
    a = normal(EDGE, EDGE).astype("float16")
    assert ran(matmul, a, a, scheme="int8x6")[1:] == ("native", Reason.DTYPE)


def test_a_mix_of_numpy_and_cupy_fails_as_it_did() -> None:
    a = normal(600, 600)
    with pytest.raises(TypeError) as native:
        np.eye(600) @ a
    for scheme in (None, "int8x6"):
        with pytest.raises(TypeError) as ours:
            matmul(np.eye(600), a, scheme=scheme)
        assert str(ours.value) == str(native.value)


def test_tf32_that_was_asked_for_stays() -> None:
    linalg = cupy._core._routines_linalg
    before = linalg.get_compute_type("f")
    a = normal(EDGE, EDGE)
    cupy._core.set_compute_type("f", linalg.COMPUTE_TYPE_TF32)
    try:
        assert ran(matmul, a, a)[1] == "native"
    finally:
        cupy._core.set_compute_type("f", before)
    assert ran(matmul, a, a)[1] == "faithful"


class TestPyTorch:
    @pytest.fixture
    def torch(self) -> Any:
        return pytest.importorskip("torch", reason="PyTorch is not installed")

    def test_tensors_come_back_as_tensors(self, torch: Any) -> None:
        a, b = (torch.randn(EDGE, EDGE, device="cuda") for _ in range(2))
        for scheme, wanted in ((None, "faithful"), ("int8x6", "int8x6")):
            result, scheme_ran, _ = ran(matmul, a, b.T, scheme=scheme)
            assert scheme_ran == wanted
            assert type(result) is torch.Tensor
            assert (result.device, result.dtype) == (a.device, a.dtype)
            exact = a.double() @ b.T.double()
            assert ((result - exact).norm() / exact.norm()).item() < 1e-6

    def test_on_its_own_stream(self, torch: Any) -> None:
        a = torch.randn(EDGE, EDGE, device="cuda")
        wanted = ran(matmul, a, a, scheme="int8x6")[0]
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()), use(replace(current(), scheme="int8x6")):
            later = torch.zeros_like(a)
            for _ in range(20):
                later.copy_(a)
            result = matmul(later, later) + 0
        torch.cuda.synchronize()
        assert torch.equal(result, wanted)

    def test_gradients_stay_with_pytorch(self, torch: Any) -> None:
        a = torch.randn(EDGE, EDGE, device="cuda", requires_grad=True)
        result, scheme, reason = ran(matmul, a, a.detach(), scheme="int8x6")
        assert (scheme, reason) == ("native", Reason.GRADIENT)
        result.sum().backward()
        assert a.grad is not None
        with torch.no_grad():
            assert ran(matmul, a, a, scheme="int8x6")[1:] == ("int8x6", None)

    def test_what_else_stays_with_pytorch(self, torch: Any) -> None:
        a = torch.randn(EDGE, EDGE, device="cuda")
        for x, reason in (
            (a.half(), Reason.DTYPE),
            (a[:32, :32], Reason.TOO_SMALL),
            (torch.eye(8, device="cuda").to_sparse(), Reason.SPARSE),
            (a.cpu(), Reason.NOT_AN_ARRAY),
        ):
            assert ran(matmul, x, x, scheme="int8x6")[1:] == ("native", reason)
        with torch.autocast("cuda"):
            assert ran(matmul, a, a, scheme="int8x6")[1:] == ("native", Reason.AUTOCAST)
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            assert ran(matmul, a, a)[1] == "native"
        finally:
            torch.set_float32_matmul_precision(before)

    def test_vmap_and_forward_gradients(self, torch: Any) -> None:
        a = torch.randn(4, 256, 256, device="cuda")
        with use(Context(scheme="int8x6", backend="cuda")):
            mapped = torch.vmap(lambda x: matmul(x, a[0]))(a)
            torch.testing.assert_close(mapped, a @ a[0], atol=1e-3, rtol=1e-3)
            _, tangent = torch.func.jvp(lambda x: matmul(x, a[0]), (a[1],), (a[2],))
            torch.testing.assert_close(tangent, a[2] @ a[0], atol=1e-3, rtol=1e-3)
