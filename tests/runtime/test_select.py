"""Who multiplies arrays of a GPU, and NumPy's where there is one: on a GPU that is not there."""

import sys
from math import inf
from typing import Any

import numpy as np
import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime import api, worth
from mixpert_py.runtime.api import carry_out, dot, dot_method, matmul
from mixpert_py.runtime.context import Context, SchemeUse, use
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Call, Settings, matmul_shape
from tests.runtime import operands as operands_of
from tests.runtime.gpu.fake import FakeGpu, Stream, ndarray, normal, on_device, pays_from
from tests.runtime.operands import SITE, traced

MIN_K = worth.MIN_K  # that of a fake GPU is 1
EDGE = 16  # from here on emulation pays in these tests


@pytest.fixture
def gpu(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    figures = pays_from(EDGE**3, EDGE / 3, host=1e8)
    monkeypatch.setattr(worth, "figures", lambda name: figures)
    monkeypatch.setattr(api, "MIN_ELEMENTS_TO_MOVE", 100 * 100)
    return gpu


def ran(*operands: Any, **given: Any) -> tuple[str, Reason | None]:
    _, *how = operands_of.ran(matmul, *operands, **given)
    return how[0], how[1]


@pytest.mark.parametrize(
    ("dtypes", "size", "scheme", "wanted"),
    [
        ("ff", EDGE, None, ("faithful", None)),
        ("ff", EDGE - 1, None, ("native", None)),
        ("dd", EDGE, None, ("crt", None)),
        ("dd", EDGE - 1, None, ("native", None)),
        ("fd", EDGE, None, ("native", None)),
        ("ii", EDGE, None, ("native", None)),
        ("ff", EDGE, "int8x6", ("int8x6", None)),
        ("ff", EDGE - 1, "int8x6", ("native", Reason.TOO_SMALL)),
        ("dd", EDGE, "faithful", ("faithful", None)),
        ("dd", EDGE, "float32", ("faithful", None)),
        ("fd", EDGE - 1, "float32", ("native", Reason.TOO_SMALL)),
        ("ff", EDGE - 1, "float32", ("float32", None)),
        ("ff", EDGE - 1, "float64", ("float64", None)),
        ("dd", EDGE - 1, "float64", ("float64", None)),
        ("ff", EDGE, "native", ("native", None)),
        ("ii", EDGE, "int8x6", ("native", Reason.TOO_SMALL)),
        ("FF", EDGE, None, ("faithful", None)),
        ("Ff", EDGE, None, ("faithful", None)),
        ("DD", EDGE, None, ("crt", None)),
        ("DD", EDGE - 1, None, ("native", None)),
        ("Dd", EDGE, None, ("native", None)),
        ("FD", EDGE, None, ("native", None)),
        ("FF", EDGE - 1, None, ("native", None)),
        ("DD", EDGE, "int8x6", ("int8x6", None)),
        ("dF", EDGE, "int8x6", ("int8x6", None)),
        ("FF", EDGE - 1, "int8x6", ("native", Reason.TOO_SMALL)),
        ("DD", EDGE, "float32", ("faithful", None)),
        ("Ff", EDGE - 1, "float32", ("float32", None)),
        ("FF", EDGE - 1, "float64", ("float64", None)),
        ("DD", EDGE - 1, "float64", ("float64", None)),
        ("GG", EDGE, "int8x6", ("native", Reason.DTYPE)),
        ("ee", EDGE, "int8x6", ("native", Reason.DTYPE)),
    ],
)
@pytest.mark.usefixtures("gpu")
def test_what_runs(dtypes: str, size: int, scheme: str | None, wanted: Any) -> None:
    threes = {True: 3 + 3j, False: 3}
    a, b = (ndarray(np.full((size, size), threes[t in "FDG"]).astype(t)) for t in dtypes)
    result, record = traced(matmul, a, b, scheme=scheme)
    assert (*record.schemes, *(record.reasons or [None])) == wanted
    assert type(result) is ndarray
    assert result.dtype == np.result_type(a.x, b.x)
    np.testing.assert_array_equal(result.x, a.x @ b.x)
    assert record.shapes == {(size, size, size): 1}
    assert record.dtypes == {str(result.dtype): 1}


@pytest.mark.usefixtures("gpu")
def test_sums_of_few_products_are_native_unless_a_scheme_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worth, "MIN_K", MIN_K)
    for k, wanted in ((47, "native"), (48, "faithful")):
        operands = normal(100, k), normal(k, 100)
        assert ran(*operands) == (wanted, None)
        assert ran(*operands, scheme="faithful") == ("faithful", None)
        wide = [ndarray(x.x.astype(float)) for x in operands]
        wanted = "crt" if k == 48 else "native"
        for given in (wide, [x.x for x in wide]):
            assert ran(*given, backend="cuda")[0] == wanted
            assert ran(*given, backend="cuda", scheme="crt") == ("crt", None)


@pytest.mark.usefixtures("gpu")
def test_float64_takes_residues_unasked_where_15_moduli_are_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a = ndarray(normal(EDGE, EDGE).x.astype(float))
    for native, wanted in ((1.0, "native"), (1.05, "native"), (1.1, "crt")):
        figures = pays_from(1)._replace(times=lambda *_, native=native: (1.0, native))
        monkeypatch.setattr(worth, "figures", lambda name, figures=figures: figures)
        assert ran(a, a) == (wanted, None)
        assert ran(a, a, scheme="crt")[0] == ("crt" if native > 1.0 else "native")


@pytest.mark.usefixtures("gpu")
def test_float64_of_much_spread_is_native_with_the_reason() -> None:
    a = ndarray(np.eye(EDGE) + 1e-9)
    assert ran(a, a) == ("native", Reason.SPREAD)


@pytest.mark.usefixtures("gpu")
def test_a_row_of_native_products_of_float64_is_made_once_each() -> None:
    made: list[Any] = []

    def native(x: Any, y: Any) -> Any:
        made.append(x @ y)
        return made[-1]

    a, b = ndarray(np.eye(EDGE) + 1e-9), ndarray(normal(EDGE, EDGE).x.astype(float))
    uses = SchemeUse("crt")
    with use(Context(scheme="crt", uses=uses)):
        for count in range(1, 8):
            assert matmul(a, a, native=native) is made[-1]
            assert len(made) == count
        assert uses.reasons == {Reason.SPREAD}
        assert uses.why_not() is not None
        value = matmul(b, b, native=native)
        assert value is not made[-1]
        np.testing.assert_allclose(value.x, b.x @ b.x, rtol=1e-13)
        assert uses.why_not() is None


@pytest.mark.usefixtures("gpu")
def test_a_sum_is_not_made_before_it_is_known_to_be_native() -> None:
    made: list[Any] = []

    def native(x: Any, y: Any) -> Any:
        made.append(x @ y)
        return made[-1]

    spread, plain = ndarray(np.eye(EDGE) + 1e-9), ndarray(np.full((EDGE, EDGE), 1.25))
    with use(Context(scheme="crt")):
        for x in (*[spread] * 8, plain):
            call = Call(native, x, x, (), None, matmul_shape, is_sum=True)
            value, product = carry_out(call, Settings())
            assert (product is None) == (x is spread) == (value is made[-1])
    assert len(made) == 8


@pytest.mark.usefixtures("gpu")
def test_nothing_waits_while_a_graph_is_captured() -> None:
    with Stream(ptr=99) as stream:
        stream.capturing = True
        ran(normal(EDGE, EDGE), normal(EDGE, EDGE))
    assert stream.waits == 0


@pytest.mark.usefixtures("gpu")
def test_an_array_of_another_device_is_native() -> None:
    with on_device(1):
        there = normal(EDGE, EDGE)
    here = normal(EDGE, EDGE)
    with pytest.raises(DeviceError, match=r"cuda:0 and cuda:1: move one, as in .*Device\(0\)"):
        ran(here, there, scheme="int8x6")
    assert ran(here, there) == ("native", None)
    assert ran(there, there, scheme="int8x6") == ("native", Reason.OTHER_DEVICE)
    with on_device(1):
        assert ran(there, there, scheme="int8x6") == ("int8x6", None)


def test_products_that_may_be_of_tf32_stay(gpu: FakeGpu) -> None:
    gpu.lowered = True
    a = normal(EDGE, EDGE)
    assert ran(a, a) == ("native", None)
    assert ran(a, a, scheme="int8x3") == ("int8x3", None)


def test_an_old_gpu_is_not_used(gpu: FakeGpu) -> None:
    gpu.capability = 7, 5
    a = normal(EDGE, EDGE)
    assert ran(a, a, scheme="int8x6") == ran(a, a) == ("native", Reason.OLD_GPU)
    assert ran(a.x, a.x, scheme="int8x6") == ("native", Reason.OLD_GPU)
    with pytest.raises(DeviceError, match=r"compute capability 7.5; the kernels need 8.0"):
        matmul(a, a, backend="cuda")


def test_numpy_arrays_move_where_somebody_says_so(gpu: FakeGpu) -> None:
    a, b = normal(5, 6).x, normal(6, 7).x
    with use(Context(scheme="int8x8", backend="cuda")):
        for product in (matmul, dot, dot_method):
            result = product(a, b)
            assert type(result) is np.ndarray
            np.testing.assert_allclose(result, a @ b, atol=1e-5)
    assert len(gpu.launches) == 3
    np.testing.assert_allclose(matmul(a, b, backend="cuda"), a @ b, atol=1e-5)
    assert len(gpu.launches) == 4
    np.testing.assert_array_equal(matmul(a.astype(float), b, backend="cuda"), a.astype(float) @ b)
    assert len(gpu.launches) == 4


@pytest.mark.usefixtures("gpu")
def test_numpy_arrays_move_where_it_pays() -> None:
    a = normal(400, 400).x
    assert ran(a, a) == ("faithful", None)
    assert ran(a, a, scheme="int8x6") == ("int8x6", None)
    assert ran(a[:9, :9], a[:9, :9], scheme="int8x6") == ("native", Reason.TOO_SMALL)
    assert ran(a[:9, :9], a[:9, :9]) == ("native", None)
    assert ran(a.astype(float), a.astype(float)) == ("crt", None)
    assert ran(a.astype(float), a) == ("native", None)
    assert ran(a + 1j * a.astype(float), a + 1j * a.astype(float)) == ("crt", None)
    with use(Context()):
        for _ in range(2):
            assert np.abs(matmul(a, a, site=SITE) - a @ a).max() > 0


def test_cuda_is_not_begun_for_a_product_that_does_not_pay(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "cupy")
    monkeypatch.setattr(worth, "STARTING", inf)
    monkeypatch.setattr(gpu, "error", RuntimeError("CUDA was asked"))
    a = normal(400, 400).x
    assert ran(a, a, scheme="int8x6") == ("native", Reason.TOO_SMALL)
    assert ran(a, a) == ("native", None)
