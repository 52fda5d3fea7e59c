"""The rows of the contract: spellings of a product, operands, schemes with their stated bounds."""

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import mixpert_py

Array = Any
Function = Callable[..., Any]
M, K, N = 20, 64, 24


@dataclass(frozen=True, slots=True)
class Scheme:
    """A scheme, and the stated bound of its error, in every element of the product:

        (constant + slope · K) · unit · measure + unit of the result · |C|

    measure: |A||B|, or the products of the norms of rows of A and columns of B. name: None for what
    runs where nobody chooses a scheme. any_range: the bound holds for operands of any exponents.
    """

    name: str | None
    constant: float
    slope: float
    unit: float
    by_norms: bool = False
    any_range: bool = True

    def bound(self, a: Array, b: Array) -> Array:
        """Largest allowed error of each element. a, b: (…, m, k) and (…, k, n), all finite."""
        a, b = np.abs(wide(a)), np.abs(wide(b))
        k = a.shape[-1]
        if self.by_norms:
            rows = np.sqrt((a * a).sum(axis=-1, keepdims=True))
            measure = rows * np.sqrt((b * b).sum(axis=-2, keepdims=True))
        else:
            measure = np.matmul(a, b)
        return (self.constant + self.slope * k) * self.unit * measure


SINGLE, DOUBLE = 2.0**-24, 2.0**-53
SCHEMES = {
    "default": Scheme(None, 12, 1, SINGLE),
    "native": Scheme("native", 4, 1, SINGLE),
    "float32": Scheme("float32", 4, 1, SINGLE),
    "float64": Scheme("float64", 4, 1, DOUBLE),
    "faithful": Scheme("faithful", 12, 1, SINGLE),
    "fp16x3": Scheme("fp16x3", 12, 1, SINGLE),
    "bf16x6": Scheme("bf16x6", 12, 1, SINGLE),
    "int8x6": Scheme("int8x6", 8, 1, SINGLE, by_norms=True),
    "int8x10": Scheme("int8x10", 8, 1, SINGLE, by_norms=True),
    "crt": Scheme("crt", 1, 1, DOUBLE),
    "crt14": Scheme("crt14", 8, 1, DOUBLE, by_norms=True),
    "egemm": Scheme("egemm", 16, 1, SINGLE, any_range=False),
    "fp16": Scheme("fp16", 2, 0, 2.0**-11, any_range=False),
    "mixpert-IV": Scheme("mixpert-IV", 16, 1, 2.0**-20, by_norms=True, any_range=False),
}


def wide(x: Array) -> Array:
    return x.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble)


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    rng = np.random.default_rng((seed, *shape))
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return (9 * x).astype(dtype) if np.dtype(dtype).kind in "iu" else x.astype(dtype)


# name → shapes of a and b.
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "matrices": ((M, K), (K, N)),
    "one row": ((1, K), (K, N)),
    "one column": ((M, K), (K, 1)),
    "K = 1": ((M, 1), (1, N)),
    "odd sizes": ((13, 77), (77, 5)),
    "vector, matrix": ((K,), (K, N)),
    "matrix, vector": ((M, K), (K,)),
    "vectors": ((K,), (K,)),
    "stack": ((3, M, K), (3, K, N)),
    "stack, matrix": ((3, M, K), (K, N)),
    "matrix, stack": ((M, K), (3, K, N)),
    "stack, vector": ((3, M, K), (K,)),
    "broadcast": ((2, 1, 5, K), (3, K, 4)),
    "tiny stack": ((50, 4, 4), (50, 4, 4)),
    "no rows": ((0, K), (K, N)),
    "no columns": ((M, K), (K, 0)),
    "no K": ((M, 0), (0, N)),
    "empty stack": ((0, M, K), (0, K, N)),
    "empty vectors": ((0,), (0,)),
    "shapes do not fit": ((M, K), (K + 1, N)),
    "stacks do not fit": ((2, M, K), (3, K, N)),
}

# name → a view of an array of the shape that it is given.
VIEWS: dict[str, Callable[[Array], Array]] = {
    "C order": lambda x: x,
    "Fortran order": lambda x: x.copy(order="F"),
    "transposed": lambda x: x.T.copy().T,
    "reversed": lambda x: x[::-1, ::-1],
    "every other": lambda x: x.repeat(2, axis=0).repeat(2, axis=1)[::2, ::2],
    "last axis first": lambda x: np.moveaxis(np.moveaxis(x, -1, 0).copy(), 0, -1),
    "with a gap": lambda x: x.repeat(2, axis=1)[:, : x.shape[1]],
    "stride 0": lambda x: np.broadcast_to(x[:1], x.shape),
}

DTYPES = ("ff", "dd", "fd", "df", "FF", "DD", "fF", "dD", "ee", "ii", "fi", "??", "OO")


def _special(value: float, place: tuple[int, int]) -> Callable[[Array], Array]:
    def put(x: Array) -> Array:
        x = x.copy()
        x[place] = value
        return x

    return put


# name → what is put into a. What NumPy makes of it decides where the result is not finite.
SPECIAL: dict[str, Callable[[Array], Array]] = {
    "NaN": _special(math.nan, (2, 3)),
    "Inf": _special(math.inf, (2, 3)),
    "−Inf": _special(-math.inf, (0, 0)),
    "zeros": lambda x: x * 0,
    "subnormal": lambda x: x * np.finfo(x.dtype).smallest_subnormal * 64,
    "one subnormal": lambda x: _special(float(np.finfo(x.dtype).smallest_subnormal), (1, 1))(x),
    "huge": lambda x: x * (np.finfo(x.dtype).max / 1024 / K),
    "one huge entry": lambda x: _special(float(np.finfo(x.dtype).max) / 1024, (3, 4))(x),
    "wide range": lambda x: x * np.logspace(-12, 12, x.shape[1], dtype=x.dtype),
    "overflows": lambda x: np.full_like(x, np.finfo(x.dtype).max / 2),
}


@mixpert_py.accelerate
def accelerated(a: Array, b: Array) -> Array:
    return a @ b


def _in_place(product: Function) -> Function:
    def call(a: Array, b: Array, **given: Any) -> Array:
        a = a.copy()
        made = product(a, b, **given)
        assert made is a
        return made

    return call


# Of these, only NumPy arrays are taken.
ON_HOST = ("multi_dot", "a @= b")
# name → (our function, the program's own). Arguments: two matrices, b a square.
SPELLINGS: dict[str, tuple[Function, Function]] = {
    "@": (mixpert_py.matmul, operator.matmul),
    "np.matmul": (functools.partial(mixpert_py.matmul, native=np.matmul), np.matmul),
    "np.dot": (mixpert_py.dot, np.dot),
    "a.dot": (mixpert_py.dot_method, lambda a, b: a.dot(b)),
    "np.inner": (lambda a, b, **s: mixpert_py.inner(a, b.T, **s), lambda a, b: np.inner(a, b.T)),
    "np.tensordot": (
        lambda a, b, **s: mixpert_py.tensordot(a, b, 1, **s),
        lambda a, b: np.tensordot(a, b, 1),
    ),
    "np.einsum": (
        lambda a, b, **s: mixpert_py.einsum("ij,jk->ik", a, b, **s),
        lambda a, b: np.einsum("ij,jk->ik", a, b),
    ),
    "xp.matmul": (functools.partial(mixpert_py.xp_product, native=np.matmul), np.matmul),
    "multi_dot": (
        lambda a, b, **s: mixpert_py.multi_dot([a, b], **s),
        lambda a, b: np.linalg.multi_dot([a, b]),
    ),
    "a @= b": (_in_place(mixpert_py.imatmul), _in_place(operator.imatmul)),
}
