"""Operands of every kind that a product may meet, and what becomes of them."""

import operator
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from mixpert_py.runtime.api import dot, dot_method, matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.tracing.trace import SiteTrace, Trace
from tests.runtime.families import Array

SITE = "m:f/matmul~aa#0"


class Matrix:
    """A user's class with a product of its own, on both sides."""

    def __matmul__(self, other: object) -> str:
        return "left"

    def __rmatmul__(self, other: object) -> str:
        return "right"

    def dot(self, other: object, weight: object = None) -> tuple[str, object]:
        return "dot", weight


class Refuses:
    """A class that NumPy may not touch, in a module without a name."""

    __array_ufunc__ = None
    __module__ = None  # type: ignore[assignment]


class Ufunc:
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return ufunc.__name__, len(inputs), sorted(kwargs)


class Function:
    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return func.__name__, len(args), sorted(kwargs)


class Raises:
    def __matmul__(self, other: object) -> None:
        raise KeyError("from __matmul__")

    def dot(self, other: object) -> None:
        raise KeyError("from dot")


class Tagged(np.ndarray[Any, Any]):
    """A subclass without anything of its own."""


def _operands() -> dict[str, Any]:
    rng = np.random.default_rng(0)

    def normal(*shape: int, dtype: Any = float) -> Any:
        return rng.standard_normal(shape).astype(dtype)

    square = normal(4, 4)
    read_only = normal(4, 4)
    read_only.flags.writeable = False
    return {
        "()": np.array(2.5),
        "(4)": normal(4),
        "(3)": normal(3),
        "(4, 4)": square,
        "(3, 4)": normal(3, 4),
        "(4, 1)": normal(4, 1),
        "(2, 4, 4)": normal(2, 4, 4),
        "(5, 4, 4)": normal(5, 4, 4),
        "(5, 1, 4, 3)": normal(5, 1, 4, 3),
        "(0)": np.empty(0),
        "(0, 4)": np.empty((0, 4)),
        "(4, 0)": np.empty((4, 0)),
        "(0, 0)": np.empty((0, 0)),
        "(2, 0, 4)": np.empty((2, 0, 4)),
        "float32": normal(4, 4, dtype=np.float32),
        "float32 vector": normal(4, dtype=np.float32),
        "float16": normal(4, 4, dtype=np.float16),
        "longdouble": normal(4, 4, dtype=np.longdouble),
        "complex": normal(4, 4) + 1j,
        "int": rng.integers(-9, 9, (4, 4)),
        "uint8": rng.integers(0, 9, (4, 4)).astype(np.uint8),
        "bool": rng.integers(0, 2, (4, 4)) == 1,
        "object": normal(4, 4).astype(object),
        "swapped": square.astype(square.dtype.newbyteorder()),
        "structured": np.zeros((4, 4), [("x", float)]),
        "datetime": np.zeros((4, 4), "datetime64[s]"),
        "string": np.full((4, 4), "a"),
        "transposed": normal(4, 4).T,
        "reversed": normal(4, 4)[::-1, ::-1],
        "every other": normal(8, 8)[::2, ::2],
        "stride 0": np.broadcast_to(normal(4), (4, 4)),
        "read-only": read_only,
        "NaN": np.where(np.eye(4) > 0, np.nan, square),
        "Inf": np.where(np.eye(4) > 0, np.inf, square),
        "matrix": np.matrix(normal(4, 4)),
        "masked": np.ma.masked_less(normal(4, 4), 0),
        "subclass": normal(4, 4).view(Tagged),
        "csr": sparse.csr_array(np.eye(4)),
        "csr matrix": sparse.csr_matrix(np.eye(4)),
        "float": 2.0,
        "float64 scalar": np.float64(2),
        "list": [[1.0, 0.0, 0.0, 0.0]] * 4,
        "None": None,
        "str": "text",
        "user's class": Matrix(),
        "refuses": Refuses(),
        "ufunc": Ufunc(),
        "function": Function(),
        "raises": Raises(),
    }


OPERANDS = _operands()
Product = Callable[..., Any]
SPELLINGS: dict[str, tuple[Product, Product]] = {
    "@": (operator.matmul, matmul),
    "np.matmul": (np.matmul, lambda *a, **k: matmul(*a, native=np.matmul, **k)),
    "np.dot": (np.dot, lambda *a, **k: dot(*a, native=np.dot, **k)),
    "x.dot": (lambda a, *b, **k: a.dot(*b, **k), dot_method),
}


def outcome(product: Product, *operands: Any) -> tuple[Any, list[str]]:
    """What a product returned or raised, and the warnings it gave."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = product(*operands)
        except Exception as error:
            result = type(error), str(error)
    return result, [str(warning.message) for warning in caught]


def dense(x: Any) -> Any:
    return x.toarray() if sparse.issparse(x) else x


def same(result: Any, native: Any) -> bool:
    if type(result) is not type(native):
        return False
    if isinstance(native, (np.ndarray, np.generic)) or sparse.issparse(native):
        if (result.dtype, result.shape) != (native.dtype, native.shape):
            return False
        one, other = np.asarray(dense(result)), np.asarray(dense(native))
        if one.dtype == object:
            return all(same(x, y) for x, y in zip(one.flat, other.flat, strict=True))
        return np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")
    return bool(result == native or (result != result and native != native))


def traced(
    product: Product,
    *operands: Any,
    scheme: str | None = None,
    in_force: str | None = None,
    **given: Any,
) -> tuple[Any, SiteTrace]:
    """The result of a call under a scheme and, in force, a backend; and what a trace has of it."""
    trace = Trace()
    with use(Context(scheme=scheme, backend=in_force, trace=trace)):
        result = product(*operands, site=SITE, **given)
    return result, trace.sites[SITE]


def ran(product: Product, *operands: Any, **given: Any) -> tuple[Any, str, Reason | None]:
    """The result of a call, the one scheme that ran, and the reason if another was in force."""
    result, record = traced(product, *operands, **given)
    (scheme,), reasons = record.schemes, [*record.reasons]
    return result, scheme, *(reasons or [None])


def frames_in(work: Callable[[], Any]) -> int:
    """The number of calls of Python functions while `work` runs, that of `work` itself too."""
    seen: list[str] = []
    sys.setprofile(lambda frame, event, _: seen.append(event))
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen.count("call")


def assert_differs_in_value_only(result: Any, wanted: Any, operands: tuple[str, str]) -> None:
    """An emulated product is of the native one's type and shape, finite where it is, and near it.

    operands: their names, for the message.
    """
    assert type(result) is type(wanted), (operands, result, wanted)
    assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(np.isfinite(result), np.isfinite(wanted))
    # Of complex numbers that are not finite, libraries make different ones.
    kept = np.isfinite(wanted) | (np.asarray(wanted).dtype.kind != "c")
    np.testing.assert_allclose(
        np.asarray(result)[kept], np.asarray(wanted)[kept], rtol=0, atol=3e-5
    )


def fma(x: Array, y: Array, z: Array) -> Array:
    """x · y + z, rounded once, of float32 arrays that broadcast.

    The product is exact in float64. Its sum with z is rounded to odd there: to the neighbour of the
    exact sum whose last bit is set, which float32 then rounds as it would the sum itself.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        product, other = np.broadcast_arrays(x.astype(np.float64) * y, z.astype(np.float64))
        total = np.asarray(product + other)
        part = total - product
        lost = (product - (total - part)) + (other - part)
        is_even = total.view(np.uint64) & 1 == 0
        inexact = np.isfinite(total) & (lost != 0) & is_even
        odd = np.nextafter(total, np.where(lost > 0, np.inf, -np.inf))
        return np.where(inexact, odd, total).astype(np.float32)


def chained(a: Array, b: Array) -> Array:
    """A·B, each element one chain along K, in order, from +0; stacks broadcast."""
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    value = np.zeros((*stack, a.shape[-2], b.shape[-1]), np.float32)
    for at in range(a.shape[-1]):
        value = fma(a[..., at, np.newaxis], b[..., at, np.newaxis, :], value)
    return value
