"""A product as the program wrote it, what was wished for it, and what was made of it."""

import math
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mixpert_py.runtime.certificates.certificate import Certificate
from mixpert_py.runtime.tracing.trace import Reason, Shape

Array = npt.NDArray[Any]
Native = Callable[..., Any]

MATMUL: Native = np.matmul  # as they are here, whatever a program puts in their place later
DOT: Native = np.dot

# By the dtype's kind; the rest is Reason.DTYPE.
DTYPES = {"i": Reason.INTEGER, "u": Reason.INTEGER, "b": Reason.INTEGER}

# The types that take schemes, and of what precision they are.
PRECISION = {
    "float32": "float32",
    "float64": "float64",
    "complex64": "float32",
    "complex128": "float64",
}


class Addend(NamedTuple):
    """What a product becomes a term of: alpha · A·B + beta · c.

    alpha, beta: finite, of the result's precision; beta is not 0. c: an array where the operands
    are, of the result's type, of its shape or broadcast to it. in_place: the sum is written to c.
    """

    alpha: float
    beta: float
    c: Any
    in_place: bool = False


ALONE = Addend(1.0, 0.0, None)


class Call(NamedTuple):  # made at every planned call, and twice as quick as a dataclass
    """A product as the program wrote it. shape_of: (m, k, n) of two arrays, or why it has none.

    left, right: an operand packed before. takes_tensors: native is PyTorch's own. addend: what
    whoever makes the product may add at once; `run` does not.
    """

    native: Native
    a: Any
    b: Any
    rest: tuple[Any, ...]
    out: Any
    shape_of: Callable[[Any, Any], Shape | Reason]
    left: Any = None
    right: Any = None
    takes_tensors: bool = False
    addend: Addend | None = None

    @property
    def destination(self) -> Any:
        """What was given as `out`; more than one is for `native` to refuse."""
        given = self.rest if self.out is None else (*self.rest, self.out)
        return given[0] if len(given) == 1 else given or None

    def run(self) -> Any:
        """The product that the program would have made."""
        if self.out is None:
            return self.native(self.a, self.b, *self.rest)
        return self.native(self.a, self.b, *self.rest, out=self.out)

    def host_shape(self) -> Shape | Reason:
        """(m, k, n) of NumPy arrays, a stack of matrices counted in m, or why there is none."""
        for kind in (type(self.a), type(self.b)):
            if kind is not np.ndarray:
                if issubclass(kind, np.ndarray):
                    return Reason.SUBCLASS
                # A class may call its module anything, not only by a string.
                sparse = str(kind.__module__).startswith(("scipy.sparse", "cupyx.scipy.sparse"))
                return Reason.SPARSE if sparse else Reason.NOT_AN_ARRAY
        return self.shape()

    def shape(self) -> Shape | Reason:
        """(m, k, n) of arrays of any library, a stack of matrices counted in m."""
        if self.a.ndim == 0 or self.b.ndim == 0:
            return Reason.SCALAR
        return self.shape_of(self.a, self.b)


class Wish(NamedTuple):
    """What one call asks for; None: what is in force, or nothing.

    goes_on: it is one of several products of its site, and not the last.
    """

    scheme: str | None = None
    block: int | None = None
    backend: str | None = None
    site: str | None = None
    guarantee: str | None = None
    certificate: bool = False
    goes_on: bool = False


def is_single(*dtypes: str) -> bool:
    """Whether all of some types are float32 or complex64: without a plan, a GPU makes their
    products faithfully.
    """
    return all(PRECISION.get(dtype) == "float32" for dtype in dtypes)


def no_outliers() -> float:
    """Of a product whose blocks all stayed, or that nobody asks about."""
    return 0.0


class Made(NamedTuple):
    """A product that a scheme made. outliers: says which share of the operands' blocks left its
    slices; may wait for the device, and has what was packed stay until it is let go.

    certificate: only where it was asked for. added: the value is the sum with the call's addend.
    transfer: seconds that moving NumPy arrays took, apart from the product; where it is traced.
    """

    value: Any
    scheme: str
    outliers: Callable[[], float] = no_outliers
    certificate: Certificate | None = None
    added: bool = False
    transfer: float = 0.0

    def into(self, value: Any) -> "Made":
        """The same product, in another array."""
        return self._replace(value=value)


def is_dask(*operands: Any) -> bool:
    """Whether any operand is a Dask array."""
    array = getattr(sys.modules.get("dask.array"), "Array", None)
    return array is not None and any(isinstance(x, array) for x in operands)


def matmul_shape(a: Any, b: Any) -> Shape | Reason:
    """(m, k, n) of a product as np.matmul makes it, or Reason.SHAPE."""
    m, k = a.shape[-2:] if a.ndim > 1 else (1, a.shape[0])
    inner, n = b.shape[-2:] if b.ndim > 1 else (b.shape[0], 1)
    if k != inner:
        return Reason.SHAPE
    if a.ndim <= 2 and b.ndim <= 2:
        return m, k, n
    try:
        stack = broadcast(a.shape[:-2], b.shape[:-2])
    except ValueError:
        return Reason.SHAPE
    return math.prod(stack) * m, k, n


def dot_shape(a: Any, b: Any) -> Shape | Reason:
    """(m, k, n) of a product as np.dot makes it, or why there is none."""
    if b.ndim > 2 and a.ndim > 1:
        return Reason.DIMENSIONS  # every matrix of a with every one of b, not in pairs
    return matmul_shape(a, b)


def result_shape(a: Any, b: Any) -> tuple[int, ...]:
    """The shape that np.matmul gives its result."""
    rows = a.shape[-2:-1] if a.ndim > 1 else ()
    columns = b.shape[-1:] if b.ndim > 1 else ()
    if a.ndim <= 2 and b.ndim <= 2:
        return (*rows, *columns)
    return (*broadcast(a.shape[:-2], b.shape[:-2]), *rows, *columns)


@lru_cache(maxsize=1024)
def broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """np.broadcast_shapes, which makes arrays to find out. Raises ValueError."""
    return np.broadcast_shapes(a, b)


def is_wide(*names: str) -> bool:
    """Whether any of these types is of float64's precision."""
    return any(PRECISION.get(name) == "float64" for name in names)


def real_products(*names: str) -> int:
    """How many real products one of operands of two such types is: 1, 2 or 4."""
    return 1 << sum(name.startswith("complex") for name in names)


@lru_cache(maxsize=64)
def name_of(dtype: Any) -> str:
    """A dtype's name, which NumPy composes anew each time; PyTorch's without its module."""
    return str(dtype).rpartition(".")[2]
