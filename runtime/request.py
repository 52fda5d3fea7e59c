"""One product: the call as the program wrote it, the request to a backend, and the product.

`Call` and `Settings` are what a function such as `matmul` is given. `select.resolve_scheme` makes a
`Request` of them, which one of the backends answers with a `Product`, or with the `Reason` why it
cannot.
"""

import math
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import numpy as np

from mixpert_py.runtime.arrays import AnyArray
from mixpert_py.runtime.program_frames import pass_over
from mixpert_py.runtime.reasons import Reason, Shape

if TYPE_CHECKING:
    from mixpert_py.runtime.model.device_model import Accumulations

Native = Callable[..., Any]

MATMUL: Native = np.matmul  # as they are here, whatever a program puts in their place later
DOT: Native = np.dot

# By the dtype's kind; the rest is Reason.DTYPE.
DTYPES = {"i": Reason.INTEGER, "u": Reason.INTEGER, "b": Reason.INTEGER}


class Call(NamedTuple):  # made at every planned call, and twice as quick as a dataclass
    """A product as the program wrote it. shape_of: (m, k, n) of two arrays, or why it has none.

    takes_tensors: `native` is a function of PyTorch's. is_loop: `native` makes it in a loop of
    NumPy's own, without BLAS. is_sum: `native` adds it to something. is_trained: it is of a pass
    that records gradients, or of a backward pass.
    """

    native: Native
    a: Any
    b: Any
    rest: tuple[Any, ...]
    out: Any
    shape_of: Callable[[Any, Any], Shape | Reason]
    takes_tensors: bool = False
    is_loop: bool = False
    is_sum: bool = False
    is_trained: bool = False

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


def call_native(native: Native, *operands: object, **options: object) -> Any:
    """native(*operands, **options), called from here: in `warned` warnings are errors at first."""
    return native(*operands, **options)


pass_over(Call.run, call_native)


class Own(TypedDict, total=False):
    """The keyword arguments by which one call overrides the context, see `Settings`."""

    scheme: str | None
    backend: str | None


class Settings(NamedTuple):
    """The keyword arguments of one call; None: the context decides.

    more_follow: whether the call of this site makes further products.
    """

    scheme: str | None = None
    backend: str | None = None
    site: str | None = None
    more_follow: bool = False


class Request(NamedTuple):
    """A product under a scheme, as every backend takes it.

    a, b: arrays as np.matmul takes them, float32, float64 or complex, of one dimension or more, in
    the backend's memory. scheme: an emulation, "faithful", or a cast. out: an array of the result's
    shape and type. right: the second operand as `pack_right` has packed it in advance. traced:
    whether a trace asks for the share of outliers and for the time of transfers. native: makes the
    products of casts. run: makes the program's own product; None where a backend may not make it.
    accumulation: how the device that the reference backend emulates accumulates products.
    """

    a: Any
    b: Any
    scheme: str
    out: Any = None
    right: Any = None
    traced: bool = False
    native: Native = MATMUL
    run: Callable[[], Any] | None = None
    accumulation: "Accumulations | None" = None


def no_outliers() -> float:
    """The share of outliers of a product without any, or whose outliers are not counted."""
    return 0.0


class Product(NamedTuple):
    """A product that a backend made. scheme: by which it was made. reason: why natively.

    outliers: returns the share of the operands' blocks that are outliers. It may wait for the
    device, and it keeps the packed operands in memory. transfer: seconds in which NumPy arrays were
    moved and the device did not compute; measured only if the product is traced.
    """

    value: Any
    scheme: str
    outliers: Callable[[], float] = no_outliers
    transfer: float = 0.0
    reason: Reason | None = None

    def with_value(self, value: object) -> "Product":
        return self._replace(value=value)


def is_dask(*operands: object) -> bool:
    array = getattr(sys.modules.get("dask.array"), "Array", None)
    return array is not None and any(isinstance(x, array) for x in operands)


def matmul_shape(a: AnyArray, b: AnyArray) -> Shape | Reason:
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


def dot_shape(a: AnyArray, b: AnyArray) -> Shape | Reason:
    """(m, k, n) of a product as np.dot makes it, or why there is none."""
    if b.ndim > 2 and a.ndim > 1:
        return Reason.DIMENSIONS  # every matrix of a with every one of b, not in pairs
    return matmul_shape(a, b)


def mm_shape(a: AnyArray, b: AnyArray) -> Shape | Reason:
    """(m, k, n) of a product as torch.mm makes it, or why there is none."""
    return matmul_shape(a, b) if a.ndim == b.ndim == 2 else Reason.DIMENSIONS


def bmm_shape(a: AnyArray, b: AnyArray) -> Shape | Reason:
    """(m, k, n) of a product as torch.bmm makes it, or why there is none."""
    if not a.ndim == b.ndim == 3:
        return Reason.DIMENSIONS
    return matmul_shape(a, b) if a.shape[0] == b.shape[0] else Reason.SHAPE


def result_shape(a: AnyArray, b: AnyArray) -> tuple[int, ...]:
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
