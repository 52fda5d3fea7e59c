"""Products by functions of other modules, by BLAS, and by statements that change an array."""

import copy
import functools
import operator
import random
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.linalg import blas

from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.modules import precision
from mixpert_py.runtime.products.blas import blas_gemm
from mixpert_py.runtime.products.in_place import imatmul, target
from mixpert_py.runtime.products.xp import reduce_product, xp_product
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.tracing.trace import Trace
from tests.runtime.operands import OPERANDS, outcome, same
from tests.runtime.without_gpu import FORCES, SITE
from tests.runtime.without_gpu import no_gpu as no_gpu

A, B = np.random.default_rng(0).standard_normal((2, 4, 4))


def test_a_function_of_another_module_is_only_called() -> None:
    calls = []

    def matmul(*operands: Any, **options: Any) -> str:
        calls.append((operands, options))
        return "theirs"

    with use(Context(scheme="int8x3", backend="reference", trace=(trace := Trace()))):
        for xp in (SimpleNamespace(matmul=matmul),):
            assert xp_product(A, B, out=3, site=SITE, native=xp.matmul) == "theirs"
        assert same(
            xp_product(B, native=SimpleNamespace(dot=lambda b: A @ b).dot, site=SITE), A @ B
        )
    assert calls == [((A, B), {"out": 3})]
    assert not trace.sites


def test_a_primitive_of_autograds_is_the_product_that_it_wraps() -> None:
    calls = []

    def dot(a: Any, b: Any) -> Any:
        calls.append((a, b))
        return np.dot(a, b)

    dot.fun = np.dot  # type: ignore[attr-defined]
    trace = Trace()
    with use(Context(scheme="int8x3", backend="reference", trace=trace)):
        result = xp_product(A, B, site=SITE, native=dot)
    assert trace.sites[SITE].schemes == {"int8x3": 1}
    assert np.abs(result - A @ B).max() > 0
    with use(Context()):
        assert same(xp_product(A, B, site=SITE, native=dot), A @ B)
    assert len(calls) == 1


def test_a_function_that_is_replaced_after_its_first_call_is_no_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, original, trace = np.eye(3), np.dot, Trace()
    with use(Context(trace=trace)):
        for others in (False, True, False):
            with monkeypatch.context() as patch:
                if others:
                    patch.setattr(np, "dot", np.matmul)
                xp_product(x, x, native=original, site=SITE)
    assert trace.sites[SITE].calls == 2


def test_another_reduce_gets_the_function_itself() -> None:
    def reduce(*given: Any) -> Any:
        return given

    assert reduce_product(np.dot, [A], native=reduce, site=SITE) == (np.dot, [A])
    total = reduce_product(operator.add, [1, 2, 3], native=functools.reduce, site=SITE)
    assert total == 6


@pytest.mark.parametrize(
    ("native", "operands"),
    [
        (partial(np.einsum, optimize=True), ("ij,jk->ik", A, B)),
        (partial(partial(np.einsum, "ij,jk->ik"), A), (B,)),
        (partial(np.matmul, A), (B,)),
        (partial(np.tensordot, axes=1), (A, B)),
        (partial(A.dot, out=None), (B,)),
    ],
)
def test_a_partial_is_the_function_that_it_calls(native: Any, operands: Any) -> None:
    trace = Trace()
    with use(Context(scheme="int8x3", backend="reference", trace=trace)):
        result = xp_product(*operands, site=SITE, native=native)
    assert trace.sites[SITE].schemes == {"int8x3": 1}
    assert 0 < np.abs(result - A @ B).max() < 0.1
    with use(Context()):
        assert same(xp_product(*operands, native=native), native(*operands))


def test_a_partial_of_another_function_is_only_called() -> None:
    native = partial(lambda *given, **named: (given, named), 1, scheme=2, b=3)
    with use(Context(scheme="int8x3", backend="reference", trace=(trace := Trace()))):
        result = xp_product(4, b=5, site=SITE, native=native)
    assert result == native(4, b=5) == ((1, 4), {"scheme": 2, "b": 5})
    assert not trace.sites
    assert trace.others[SITE].calls == 1


SQUARE = {f"square {kind}": np.arange(9).reshape(3, 3).astype(kind) for kind in "fdFDei?O"} | {
    "stack": np.ones((4, 3, 3)),
    "row": np.arange(3.0),
    "transposed": np.arange(9.0).reshape(3, 3).T,
    "every other": np.ones((3, 6))[:, ::2],
    "three rows": np.ones((3, 2)),
    "list": [[1, 2, 3], [4, 5, 6], [7, 8, 9]],
    "matrix": np.matrix(np.eye(3)),
    "masked": np.ma.masked_equal(np.eye(3), 1),
}


def require_as_native(name: str, a: Any, b: Any, *, exact: bool) -> None:
    """`imatmul` gives, raises, warns and writes what `@=` does."""
    theirs, ours = copy.deepcopy(a), copy.deepcopy(a)
    wanted, its_warnings = outcome(operator.imatmul, theirs, copy.deepcopy(b))
    result, our_warnings = outcome(partial(imatmul, site=SITE), ours, copy.deepcopy(b))
    if exact:
        assert same(result, wanted), (name, result, wanted)
        assert not isinstance(a, np.ndarray) or same(ours, theirs), (name, ours, theirs)
        assert our_warnings == its_warnings, name
    elif not same(result, wanted):
        assert type(result) is type(wanted), (name, result, wanted)
        assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(result, wanted, rtol=3e-5, atol=3e-5)
        assert result is ours
    assert (result is ours) == (wanted is theirs), name


@pytest.mark.parametrize("context", FORCES)
def test_a_call_that_passes_is_the_native_statement(context: str) -> None:
    with use(FORCES[context]()):
        for operands in (OPERANDS, SQUARE):
            for left, a in operands.items():
                for right, b in operands.items():
                    for _ in range(2):  # the first call of a site takes another way
                        require_as_native(f"{left}, {right}", a, b, exact=True)


@pytest.mark.parametrize("scheme", ["int8x6", "faithful", "float64", "float32"])
def test_an_emulated_call_differs_in_value_only(scheme: str) -> None:
    with precision(scheme, backend="reference"), np.errstate(all="ignore"):
        for left, a in SQUARE.items():
            for right, b in SQUARE.items():
                require_as_native(f"{left}, {right}", a, b, exact=False)


def test_an_emulated_product_is_seen_by_every_alias() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 8, 8)).astype("float32")
    alias, wanted = a.T, a @ b
    trace = Trace()
    with use(Context(scheme="int8x3", backend="reference", trace=trace)):
        result = imatmul(a, b, site=SITE)
        squared = imatmul(b, b, site=SITE)
    assert result is a
    assert squared is b
    np.testing.assert_array_equal(alias, result.T)
    assert 0 < np.abs(result - wanted).max() < 1e-2
    assert trace.sites[SITE].reasons == {}
    assert trace.sites[SITE].schemes == {"int8x3": 2}


class Watched:
    """Says in which order it is read and written."""

    def __init__(self, said: list[str]) -> None:
        vars(self).update(said=said, inner=np.eye(2))

    def __getattr__(self, name: str) -> Any:
        self.said.append(f"get {name}")
        return vars(self)["inner"]

    def __setattr__(self, name: str, value: Any) -> None:
        self.said.append(f"set {name}")
        vars(self)["inner"] = value

    def __getitem__(self, key: Any) -> Any:
        return getattr(self, str(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        setattr(self, str(key), value)


def test_a_place_is_read_and_written_once_in_the_order_of_the_statement() -> None:
    def step(name: str, value: Any) -> Any:
        said.append(name)
        return value

    said: list[str] = []
    theirs, ours = Watched(said), Watched(said)
    step("owner", theirs)[step("key", 3)] @= step("operand", np.ones((2, 2)))
    step("owner", theirs).name @= step("operand", np.ones((2, 2)))
    wanted, said[:] = list(said), []
    target(step("owner", ours))[step("key", 3)].imatmul(step("operand", np.ones((2, 2))))
    target(step("owner", ours)).name.imatmul(step("operand", np.ones((2, 2))))
    assert said == wanted
    np.testing.assert_array_equal(vars(ours)["inner"], vars(theirs)["inner"])


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
def test_an_emulated_call_differs_in_value_only_of_blas(name: str, scheme: str) -> None:
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
