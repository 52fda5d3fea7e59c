"""What every product keeps, whatever makes it: NumPy's shape, type, `out`, errors and warnings, and
the stated bound of its scheme. Only the public functions are called.
"""

import functools
import warnings
from typing import Any

import numpy as np
import pytest

import mixpert_py
from tests.contract import table
from tests.contract.conftest import Backend
from tests.contract.table import DOUBLE, SCHEMES, SINGLE, Array, K, M, N, Scheme, normal, wide

EMULATIONS = [name for name in SCHEMES if name not in ("default", "native")]


def outcome(product: Any, *operands: Any, **given: Any) -> tuple[Any, set[Any]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = product(*operands, **given)
        except Exception as error:
            result = type(error)
    return result, {(one.category, str(one.message)) for one in caught}


def check(result: Any, native: Any, scheme: Scheme, a: Array, b: Array) -> None:
    """A result against NumPy's, and against the exact product of a and b, where both are finite.

    a, b: as np.matmul takes them.
    """
    assert type(result) is type(native)
    if isinstance(native, type):
        assert result is native  # an error
        return
    assert result.dtype == native.dtype
    assert result.shape == native.shape
    if native.dtype.kind not in "fc" or native.dtype.itemsize == 2:
        np.testing.assert_array_equal(result, native)
        return
    finite = np.isfinite(native)
    assert np.isfinite(result)[finite].all()
    if not all(np.isfinite(x).all() for x in (a, b)):  # else sums overflow in one order or another
        np.testing.assert_array_equal(np.isfinite(result), finite)
        if native.dtype.kind == "f":
            np.testing.assert_array_equal(result[~finite], native[~finite])
    if not finite.any():
        return
    rows, columns = (a[None] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
    rows, columns = (np.where(np.isfinite(x), x, 0) for x in (rows, columns))
    exact = np.matmul(wide(rows), wide(columns)).reshape(native.shape)
    if native.dtype.kind == "c":  # the parts of a product are two real products each
        rows, columns = (2 * np.abs(x) for x in (rows, columns))
    info = np.finfo(native.dtype)
    unit = SINGLE if info.bits == 32 else DOUBLE
    allowed = scheme.bound(rows, columns).reshape(native.shape)
    # A scheme that is not in force leaves the native product, and no scheme is better than that.
    allowed = np.maximum(
        allowed, Scheme(None, 4, 1, unit).bound(rows, columns).reshape(native.shape)
    )
    allowed = allowed + unit * np.abs(exact) + (a.shape[-1] + 2) * info.smallest_subnormal
    error = np.abs(wide(np.asarray(result)) - exact)
    worst = np.where(finite, error - allowed, 0)
    assert (worst <= 0).all(), float((error / allowed)[finite].max())


def compare(
    backend: Backend,
    functions: tuple[Any, Any],
    scheme: Scheme,
    a: Array,
    b: Array,
    view: Any = lambda x: x,
) -> None:
    """Call both functions, and check what they returned, raised and warned of."""
    ours, native = functions
    place = view(backend.put(a)), view(backend.put(b))
    a, b = view(a), view(b)
    wanted, theirs = outcome(native, a, b)
    on_site, _ = outcome(native, *place)
    result, warned = outcome(ours, *place, scheme=scheme.name, backend=backend.name)
    assert type(result) is type(on_site)
    if backend.is_on_host:
        assert warned == theirs if scheme.name == "native" else warned <= theirs
    # A product of a GPU's vectors is an array without dimensions.
    result, wanted = np.asarray(backend.get(result)), np.asarray(wanted)
    if wanted.dtype == object and wanted.ndim == 0:
        result, wanted = result.item(), wanted.item()
    check(result, wanted, scheme, a, b)


ROWS = (
    *(("np.matmul", name, "f") for name in SCHEMES),
    *((spelling, "int8x6", "f") for spelling in ("@", "np.dot", "a.dot")),
    *(("np.matmul", name, "F") for name in ("default", "int8x10", "float64")),
)


@pytest.mark.parametrize("shapes", table.SHAPES.values(), ids=list(table.SHAPES))
def test_shapes(backend: Backend, shapes: Any) -> None:
    for spelling, scheme, dtype in ROWS:
        a, b = (normal(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes))
        if "dot" not in spelling or a.ndim <= 2 >= b.ndim:  # of stacks it is another product
            compare(backend, table.SPELLINGS[spelling], SCHEMES[scheme], a, b)


@pytest.mark.parametrize("spelling", table.SPELLINGS)
@pytest.mark.parametrize("dtype", ["f", "d"])
def test_spellings(backend: Backend, spelling: str, dtype: str) -> None:
    if spelling in table.ON_HOST and not backend.is_on_host:
        return
    a, b = normal(M, K, dtype=dtype), normal(K, K, dtype=dtype, seed=1)
    for scheme in ("default", "native", "int8x6", "crt14", "float32"):
        compare(backend, table.SPELLINGS[spelling], SCHEMES[scheme], a, b)


@pytest.mark.parametrize("view", table.VIEWS.values(), ids=list(table.VIEWS))
@pytest.mark.parametrize("dtype", ["f", "F"])
@pytest.mark.parametrize("stack", [(), (3,)], ids=["matrices", "stacks"])
def test_views(backend: Backend, stack: Any, dtype: str, view: Any) -> None:
    a, b = normal(*stack, M, K, dtype=dtype), normal(*stack, K, N, dtype=dtype, seed=1)
    for scheme in ("default", "native", "int8x6", "egemm", "mixpert-IV", "crt14"):
        compare(backend, table.SPELLINGS["@"], SCHEMES[scheme], a, b, view)


@pytest.mark.parametrize("dtypes", table.DTYPES)
def test_dtypes(backend: Backend, dtypes: str) -> None:
    if dtypes == "OO" and not backend.is_on_host:
        return  # no GPU has objects
    a, b = normal(M, K, dtype=dtypes[0]), normal(K, N, dtype=dtypes[1], seed=1)
    for scheme in SCHEMES.values():
        compare(backend, table.SPELLINGS["@"], scheme, a, b)


@pytest.mark.parametrize("special", table.SPECIAL, ids=list(table.SPECIAL))
@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.filterwarnings("ignore")
def test_special_values(backend: Backend, special: str, dtype: str) -> None:
    a = table.SPECIAL[special](normal(M, K, dtype=dtype))
    b = normal(K, N, dtype=dtype, seed=1)
    if special == "wide range":
        b = b / np.logspace(-12, 12, K, dtype=dtype)[:, None]
    is_nan = special in ("NaN", "Inf", "−Inf")
    if is_nan:
        b[3, 5] = 0
    is_wide = special in ("huge", "one huge entry", "wide range", "subnormal")
    for name, scheme in SCHEMES.items():
        if (backend.name, special, name, dtype) == ("cuda", "subnormal", "float64", "f"):
            continue  # CuPy's own cast of float32 makes zeros of subnormal numbers
        for x, y in ((b.T.copy(), a.T.copy()), (a, b))[not is_nan :]:
            if scheme.any_range or not is_wide:
                compare(backend, table.SPELLINGS["np.matmul"], scheme, x, y)


# name → where a product, or a stack of shape s, goes: a view of what `empty` makes of a shape.
OUTS: dict[str, Any] = {
    "C order": lambda empty, s: empty(*s, M, N),
    "Fortran order": lambda empty, s: empty(*s, N, M).swapaxes(-1, -2),
    "every other": lambda empty, s: empty(*s, 2 * M, 2 * N)[..., ::2, ::2],
    "reversed": lambda empty, s: empty(*s, M, N)[..., ::-1, ::-1],
    "first axis reversed": lambda empty, s: empty(*s, M, N)[::-1],
    "a block": lambda empty, s: empty(*s, 2 * M, 2 * N)[..., 3 : M + 3, 5 : N + 5],
}
OTHER_OUTS: dict[str, Any] = {
    "of another type": lambda *_: np.empty((M, N), "d"),
    "of a type that is too small": lambda *_: np.empty((M, N), "e"),
    "of integers": lambda *_: np.empty((M, N), int),
    "not aligned": lambda *_: np.empty(4 * M * N + 1, np.uint8)[1:].view("f").reshape(M, N),
    "read-only": lambda *_: np.broadcast_to(np.float32(0), (M, N)),
    "of another shape": lambda *_: np.empty((M, N + 1), "f"),
    "a tuple": lambda *_: (np.empty((M, N), "f"),),
    "no array": lambda *_: [0.0],
    "None": lambda *_: None,
}


@pytest.mark.parametrize("out", [*OUTS, *OTHER_OUTS])
@pytest.mark.parametrize("spelling", ["np.matmul", "np.dot", "a.dot"])
def test_out(out: str, spelling: str) -> None:
    ours, native = table.SPELLINGS[spelling]
    if spelling == "a.dot":
        native = lambda a, b, out: a.dot(b, out=out)  # noqa: E731
    a, b = normal(M, K), normal(K, N, seed=1)
    make = {**OUTS, **OTHER_OUTS}[out]
    for name in ("default", "native", "int8x6", "fp16x3", "crt14", "float64"):
        given, place = (make(lambda *s: np.empty(s, "f"), ()) for _ in range(2))
        wanted, theirs = outcome(native, a, b, out=given)
        scheme = SCHEMES[name]
        result, warned = outcome(ours, a, b, out=place, scheme=scheme.name, backend="reference")
        assert warned == theirs, name
        assert (result is place) == (wanted is given), name
        if isinstance(wanted, type):
            assert result is wanted, name
        elif wanted.dtype != a.dtype or out == "not aligned":
            np.testing.assert_array_equal(result, wanted)
        else:
            check(result, wanted, scheme, a, b)


@pytest.mark.parametrize("stack", [(), (3,)], ids=["matrices", "stacks"])
@pytest.mark.parametrize("out", OUTS.values(), ids=OUTS)
def test_bits_in_out(backend: Backend, out: Any, stack: Any) -> None:
    schemes = ("int8x6", "fp16x3", "crt14", "float64")
    for scheme, dtype in (*((name, "f") for name in schemes), ("int8x6", "F")):
        a, b = normal(*stack, M, K, dtype=dtype), normal(K, N, dtype=dtype, seed=1)
        place = out(lambda *s, d=dtype: backend.put(np.empty(s, d)), stack)
        product = functools.partial(mixpert_py.matmul, scheme=scheme, backend=backend.name)
        a, b = backend.put(a), backend.put(b)
        assert product(a, b, native=np.matmul, out=place) is place, scheme
        np.testing.assert_array_equal(backend.get(place), backend.get(product(a, b)), scheme)


@pytest.mark.parametrize("dtype", ["f", "F"])
@pytest.mark.parametrize("scheme", EMULATIONS)
def test_out_that_is_an_operand(backend: Backend, scheme: str, dtype: str) -> None:
    a, b = normal(K, K, dtype=dtype), normal(K, K, dtype=dtype, seed=1)
    for at in (0, 1):
        place = [backend.put(a.copy()), backend.put(b.copy())]
        given = {"scheme": scheme, "backend": backend.name}
        result = mixpert_py.matmul(*place, native=np.matmul, out=place[at], **given)
        assert result is place[at]
        check(backend.get(result), a @ b, SCHEMES[scheme], a, b)


@pytest.mark.parametrize("scheme", EMULATIONS)
def test_precision_and_accelerate(backend: Backend, scheme: str) -> None:
    a, b = normal(M, K), normal(K, N, seed=1)
    place = backend.put(a), backend.put(b)
    called = mixpert_py.matmul(*place, scheme=scheme, backend=backend.name)
    with mixpert_py.precision(scheme, backend=backend.name):
        rewritten = table.accelerated(*place)
        again = table.accelerated(*place)
    np.testing.assert_array_equal(backend.get(called), backend.get(rewritten))
    np.testing.assert_array_equal(backend.get(called), backend.get(again))
    assert not np.array_equal(backend.get(called), a @ b) or scheme in ("float32", "float64")


@pytest.mark.parametrize(("scheme", "dtype"), [("faithful", "f"), ("crt", "d")])
def test_the_same_operands_have_the_same_bits_whatever_ran_before(
    backend: Backend, scheme: str, dtype: str
) -> None:
    a, b = normal(M, K, dtype=dtype), normal(K, N, dtype=dtype, seed=1)
    far = a * np.logspace(-12, 12, K, dtype=dtype)
    spread = a.copy()
    spread[3, 5] *= 2.0**10
    pairs = [(a, b), (far, b), (spread, b), (np.rint(a), np.rint(b)), (np.rint(300 * a), b)]
    first: dict[int, Any] = {}
    for which in np.random.default_rng(0).integers(0, len(pairs), 60):
        x, y = map(backend.put, pairs[which])
        for _ in range(1 + which):
            value = mixpert_py.matmul(x, y, scheme=scheme, backend=backend.name)
            bits = backend.get(value).tobytes()
            assert first.setdefault(which, bits) == bits


@pytest.mark.parametrize("a", [normal(4, 4), [[1]], None], ids=["array", "list", "None"])
def test_unknown_names_are_one_error(a: Any) -> None:
    with pytest.raises(mixpert_py.PlanError, match=r"scheme 'int9x6'; did you mean 'int8x6'"):
        mixpert_py.matmul(a, a, scheme="int9x6")
    with pytest.raises(mixpert_py.PlanError, match="backend 'abacus'; known: reference, cuda"):
        mixpert_py.matmul(a, a, scheme="int8x6", backend="abacus")
    with pytest.raises(mixpert_py.PlanError, match="int9"), mixpert_py.precision("int9"):
        pass
    with pytest.raises(TypeError, match="speed"):
        mixpert_py.dot(a, a, speed=9)
