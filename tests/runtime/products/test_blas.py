"""`blas_gemm` does what SciPy's functions do, and says why it took no scheme."""

import copy
import random
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.linalg import blas

from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.products.blas import blas_gemm
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.tracing.trace import Trace
from tests.runtime.operands import OPERANDS, outcome, same
from tests.runtime.without_gpu import FORCES, SITE
from tests.runtime.without_gpu import no_gpu as no_gpu

RNG = np.random.default_rng(0)
FUNCTIONS = {
    "sgemm": (blas.sgemm, "float32"),
    "dgemm": (blas.dgemm, "float64"),
    "cgemm": (blas.cgemm, "complex64"),
    "zgemm": (blas.zgemm, "complex128"),
}


def converts(x: Any) -> bool:
    """Whether x can be an array of numbers. Where it cannot, SciPy lets go of a dtype that is not
    its own, and after a dozen such calls the interpreter dies.
    """
    try:
        np.array(x).astype("D")
    except (TypeError, ValueError):
        return False
    return True


CONVERTIBLE = [x for x in OPERANDS.values() if converts(x)]


def cases(dtype: str) -> list[dict[str, Any]]:
    """Calls of every kind, good and bad."""
    choose = random.Random(3)

    def matrix(*shape: int) -> Any:
        array = RNG.standard_normal(shape).astype(dtype)
        if array.dtype.kind == "c":
            array.imag = RNG.standard_normal(shape)
        return choose.choice([array, np.asfortranarray(array)])

    found = []
    for _ in range(200):
        m, k, n = (choose.choice([0, 1, 3, 4]) if choose.random() < 0.2 else 5 for _ in range(3))
        trans_a, trans_b = choose.choices([0, 0, 1, 2, True, 3, -1, 1.0], [5, 5, 5] + 5 * [1], k=2)
        case: dict[str, Any] = {
            "alpha": choose.choice([1, 1.0, -0.3, np.float32(2), np.float64(0.1), 0, 1j, "1"]),
            "a": matrix(k, m) if trans_a else matrix(m, k),
            "b": matrix(n, k) if trans_b else matrix(k, n),
            "trans_a": trans_a,
            "trans_b": trans_b,
        }
        if choose.random() < 0.7:
            case["c"] = matrix(m, n + (choose.random() < 0.1))
            case["beta"] = choose.choice([0, 1, 0.3, np.float64(2)])
            case["overwrite_c"] = choose.choice([0, 1, True])
        if choose.random() < 0.1:
            case[choose.choice("abc")] = choose.choice(CONVERTIBLE)
        found.append(case)
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("context", FORCES)
def test_a_call_that_passes_is_the_native_call(name: str, context: str) -> None:
    native, dtype = FUNCTIONS[name]
    with use(FORCES[context]()):
        for case in cases(dtype):
            theirs, ours = copy.deepcopy(case), copy.deepcopy(case)
            wanted, _ = outcome(partial(native, **theirs))
            result, _ = outcome(partial(blas_gemm, native=native, site=SITE, **ours))
            assert same(result, wanted), (case, result, wanted)
            if type(theirs.get("c")) is np.ndarray:
                assert same(ours["c"], theirs["c"])
            assert (result is ours.get("c")) == (wanted is theirs.get("c"))


@pytest.mark.parametrize("scheme", ["int8x10", "float64", "float32"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_emulated_call_differs_in_value_only(name: str, scheme: str) -> None:
    native, dtype = FUNCTIONS[name]
    trace = Trace()
    with use(Context(scheme=scheme, backend="reference", trace=trace)):
        for case in cases(dtype):
            theirs, ours = copy.deepcopy(case), copy.deepcopy(case)
            wanted, _ = outcome(partial(native, **theirs))
            result, _ = outcome(partial(blas_gemm, native=native, site=SITE, **ours))
            assert type(result) is type(wanted), (case, result, wanted)
            if isinstance(wanted, tuple):
                assert result == wanted
                continue
            assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
            assert result.flags.f_contiguous == wanted.flags.f_contiguous
            np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)
            assert (result is ours.get("c")) == (wanted is theirs.get("c"))
            if type(theirs.get("c")) is np.ndarray:
                assert same(ours["c"], theirs["c"]) or result is ours["c"]
    if scheme != "float32" or name not in ("dgemm", "zgemm"):  # they are too small for it
        assert trace.sites[SITE].schemes[scheme] > 30


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"a": np.ones((3, 3), "float32")}, Reason.DTYPE),
        ({"b": [[1.0, 2.0, 3.0]] * 3}, Reason.NOT_AN_ARRAY),
        ({"b": np.ones(3)}, Reason.DIMENSIONS),
        ({"alpha": 0.0}, Reason.SCALAR),
        ({"alpha": np.array(1.0)}, Reason.SCALAR),
        ({"trans_a": 1.0}, Reason.SHAPE),
    ],
)
def test_others_are_native_for_a_reason(given: dict[str, Any], reason: Reason) -> None:
    case = {"alpha": 1.0, "a": np.ones((3, 3)), "b": np.ones((3, 3)), **given}
    trace = Trace()
    with use(Context(scheme="int8x6", backend="reference", trace=trace)):
        result = blas_gemm(**case, native=blas.dgemm, site=SITE)
    assert same(result, blas.dgemm(**case))
    assert trace.sites[SITE].reasons == {reason: 1}


def test_a_c_that_is_an_operand_is_for_blas() -> None:
    c = np.asfortranarray(RNG.standard_normal((3, 3)))
    trace = Trace()
    with use(Context(scheme="int8x6", backend="reference", trace=trace)):
        blas_gemm(1.0, c, c, 1.0, c, overwrite_c=True, native=blas.dgemm, site=SITE)
    assert trace.sites[SITE].reasons == {Reason.OUT: 1}


def test_nan_in_c_is_not_read_where_beta_is_zero() -> None:
    c = np.full((3, 3), np.nan, order="F")
    a = RNG.standard_normal((3, 3))
    with use(Context(scheme="int8x10", backend="reference")):
        result = blas_gemm(1.0, a, a, 0, c, overwrite_c=1, native=blas.dgemm)
    assert result is c
    np.testing.assert_allclose(c, a @ a, atol=1e-6)
