"""Calls of products whose operands are rearranged into matrices, or that stay native.

An einsum is a sum of products, with a letter for each index; where two operands have a sum in
common, it is a product of matrices (`contraction`), or of stacks of them. A function that the
program has replaced by its own is called instead.
"""

import operator
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from math import prod
from string import ascii_letters, ascii_uppercase
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from mixpert_py.runtime.arrays import PRECISION, AnyArray, name_of
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import DTYPES, Call, Native, matmul_shape
from mixpert_py.runtime.select import are_half, are_integers
from mixpert_py.runtime.signatures import device_of
from mixpert_py.runtime.worth import Dims


def as_arrays(*operands: object) -> tuple[AnyArray, ...] | None:
    """The operands if all are NumPy's own arrays, or all CuPy's, whose axes may be moved freely."""
    kind = type(operands[0])
    array = getattr(sys.modules.get("cupy"), "ndarray", np.ndarray)
    if kind in (np.ndarray, array) and all(type(x) is kind for x in operands):
        arrays: tuple[Any, ...] = operands
        return arrays
    return None


def dtype_reason(*operands: AnyArray) -> Reason | None:
    """The reason not to rearrange arrays, which may copy them: a dtype that no scheme takes."""
    if are_integers(*operands) or are_half(*operands):
        return None
    for x in operands:
        if name_of(x.dtype) not in PRECISION:
            return DTYPES.get(x.dtype.kind, Reason.DTYPE)
    return None


def pairs_of(a: AnyArray, b: AnyArray, axes: object) -> tuple[list[int], list[int]] | Reason:
    """The axes of a and of b to sum over, from 0; or the reason why they are left to `native`."""
    if a.ndim == 0 or b.ndim == 0:
        return Reason.SCALAR
    if a.ndim + b.ndim > len(ascii_letters):
        return Reason.DIMENSIONS
    reason = dtype_reason(a, b)
    if reason is not None:
        return reason
    if type(axes) is int:
        given: Sequence[object] = (range(-axes, 0), range(axes))
    elif isinstance(axes, (list, tuple)) and len(axes) == 2:
        given = axes
    else:
        return Reason.SHAPE
    left, right = _normal(given[0], a.ndim), _normal(given[1], b.ndim)
    if left is None or right is None or len(left) != len(right):
        return Reason.SHAPE
    if [a.shape[axis] for axis in left] != [b.shape[axis] for axis in right]:
        return Reason.SHAPE
    return left, right


def _normal(axes: object, ndim: int) -> list[int] | None:
    """Axes as distinct numbers from 0; None if they are anything else."""
    several: Sequence[Any] = axes if isinstance(axes, (list, tuple, range)) else (axes,)
    if not all(type(axis) is int and -ndim <= axis < ndim for axis in several):
        return None
    normal = [axis % ndim for axis in several]
    return normal if len(set(normal)) == len(normal) else None


def rearranged(run: Callable[[], Any], a: AnyArray, b: AnyArray) -> Call:
    """The call of the matrix product a @ b that stands for the program's own call, `run`.

    a, b: arrays of one library, one dimension or more, stacks as in np.matmul. run: returns its
    result in the shape that np.matmul gives, so that a trace stores the same for every scheme.
    """

    def native(x: AnyArray, y: AnyArray) -> Any:
        # Schemes that are casts pass other arrays, which are not the program's.
        return run() if x is a and y is b else x @ y

    return Call(native, a, b, (), None, matmul_shape)


def not_rearranged(native: Native, a: object, b: object, reason: Reason) -> Call:
    """The call of a product that stays native: because of its operands' types, or `reason`."""
    return Call(native, a, b, (), None, lambda *_: reason)


def _own(module: str, public: ModuleType, name: str) -> Callable[..., Any]:
    """NumPy's function from the module that defines it, which programs do not modify; from the
    public module if this version of NumPy defines it elsewhere.
    """
    try:
        found: Callable[..., Any] = getattr(import_module(module), name)
    except (ImportError, AttributeError):
        found = getattr(public, name)
    return found


EINSUM = _own("numpy._core.einsumfunc", np, "einsum")
TENSORDOT = _own("numpy._core.numeric", np, "tensordot")
INNER = _own("numpy._core.multiarray", np, "inner")
MULTI_DOT = _own("numpy.linalg._linalg", np.linalg, "multi_dot")
MATRIX_POWER = _own("numpy.linalg._linalg", np.linalg, "matrix_power")
OTHERS = frozenset({"cupy", "cupyx", "dask"})  # libraries, by the first part of a module's name


def is_replaced(native: Native, *operands: object) -> bool:
    """Whether the function that a program calls as einsum, tensordot, inner or multi_dot is none of
    NumPy's, CuPy's or Dask's; then it is called, and no product replaces it.

    If an operand is of a GPU's type, the function counts as that library's. A primitive of autograd
    stands for the function that it wraps.
    """
    for x in operands:
        if type(x) in device_of:
            return False
    function = getattr(native, "fun", native) if type(native) is FunctionType else native
    if function is EINSUM or function is TENSORDOT or function is INNER or function is MULTI_DOT:
        return False
    return str(getattr(function, "__module__", "")).partition(".")[0] not in OTHERS


# The exceptions of np.einsum_path for an invalid path, which np.einsum reports itself.
NO_PATH = (IndexError, KeyError, RuntimeError, TypeError, ValueError)


class Sum(NamedTuple):
    """A sum of products: a letter for every axis of each operand, and of the result."""

    inputs: tuple[str, ...]
    output: str


class Contraction(NamedTuple):
    """A sum over products that is (stack, rows, sum) @ (stack, sum, columns).

    Each is the letters of some indices; left, right and output are as they were given.
    """

    left: str
    right: str
    output: str
    stack: str
    rows: str
    sum: str
    columns: str


class Step(NamedTuple):
    """A contraction of a path: the remaining operands that it takes. Its result is appended to
    the operands.
    """

    positions: tuple[int, ...]
    terms: Sum


def read(operands: Sequence[object]) -> tuple[str | None, tuple[Any, ...]]:
    """Subscripts and arrays from the arguments of np.einsum, in either form.

    Subscripts are None where lists of indices hold anything but numbers below 26 and Ellipsis.
    """
    if operands and isinstance(operands[0], str):
        return operands[0], tuple(operands[1:])
    count = len(operands) // 2
    arrays, lists = operands[: 2 * count : 2], operands[1 : 2 * count : 2]
    parts = [_letters(indices) for indices in (*lists, *operands[2 * count :])]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None, tuple(arrays)
    inputs, output = ",".join(known[:count]), known[count:]
    return "->".join([inputs, *output]), tuple(arrays)


def _letters(indices: object) -> str | None:
    if not isinstance(indices, (list, tuple)):
        return None
    if not all(i is Ellipsis or (type(i) is int and 0 <= i < 26) for i in indices):
        return None
    return "".join("..." if i is Ellipsis else ascii_uppercase[i] for i in indices)


@lru_cache(maxsize=256)
def expand(subscripts: str, ndims: tuple[int, ...]) -> Sum | None:
    """Subscripts with letters in place of every ellipsis, and with their output.

    ndims: how many dimensions each operand has. None where np.einsum has to judge them.
    """
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    parts = inputs.split(",")
    named = [part.replace("...", "", 1) for part in (*parts, output)]
    if len(parts) != len(ndims) or not all(i in ascii_letters for part in named for i in part):
        return None
    extra = [ndim - len(part) for ndim, part in zip(ndims, named, strict=False)]
    if any(e < 0 or (e and "..." not in part) for e, part in zip(extra, parts, strict=True)):
        return None
    longest = max(extra)
    spare = "".join(i for i in ascii_letters if i not in subscripts)
    if longest > len(spare) or (arrow and longest and "..." not in output):
        return None
    dots = spare[:longest]
    terms = tuple(
        part.replace("...", dots[longest - e :]) for part, e in zip(parts, extra, strict=True)
    )
    letters = "".join(named[:-1])
    if not arrow:
        output = "..." + "".join(i for i in sorted(set(letters)) if letters.count(i) == 1)
    output = output.replace("...", dots)
    if len(set(output)) < len(output) or not set(output) <= set("".join(terms)):
        return None
    return Sum(terms, output)


@lru_cache(maxsize=256)
def contraction(terms: Sum) -> Contraction | None:
    """The matrix product that a sum is; None if it is not one.

    It is not one if an index stands twice in one operand or is summed in one operand alone, if no
    index is summed over both operands, or if both operands are vectors, which give one number each.
    """
    if len(terms.inputs) != 2:
        return None
    (left, right), output = terms
    once = set(left) ^ set(right)
    if any(len(set(part)) < len(part) for part in (left, right)) or not once <= set(output):
        return None
    found = Contraction(
        left,
        right,
        output,
        stack="".join(i for i in output if i not in once),
        rows="".join(i for i in output if i in once and i in left),
        sum="".join(i for i in left if i not in output),
        columns="".join(i for i in output if i in once and i in right),
    )
    return found if found.sum and once else None


def path(
    terms: Sum, shapes: tuple[tuple[int, ...], ...], optimize: object
) -> tuple[Step, ...] | None:
    """The order in which np.einsum contracts its operands; None if it does not accept `optimize`.

    shapes: of the operands, no index of two sizes. optimize: as in np.einsum; False: "greedy".
    """
    wanted = tuple(optimize) if isinstance(optimize, list) else optimize
    try:
        return _path(terms, shapes, "greedy" if wanted is False else wanted)
    except NO_PATH:
        return None


@lru_cache(maxsize=256)
def _path(terms: Sum, shapes: tuple[tuple[int, ...], ...], optimize: object) -> tuple[Step, ...]:
    if isinstance(optimize, tuple) and optimize and optimize[0] == "einsum_path":
        optimize = list(optimize)
    written = f"{','.join(terms.inputs)}->{terms.output}"
    stand_ins: Any = [np.broadcast_to(0.0, shape) for shape in shapes]
    accepted: Any = optimize
    (_, *order), _ = np.einsum_path(written, *stand_ins, optimize=accepted)
    remaining = list(terms.inputs)
    steps = []
    for positions in order:
        taken = tuple(remaining[at] for at in positions)
        remaining = [part for at, part in enumerate(remaining) if at not in positions]
        needed = set(terms.output).union(*remaining)
        result = "".join(dict.fromkeys(i for part in taken for i in part if i in needed))
        steps.append(Step(tuple(positions), Sum(taken, result if remaining else terms.output)))
        remaining.append(result)
    return tuple(steps)


class Pair:
    """A contraction of two arrays of some shapes, as a product of stacks of matrices.

    native_result: the contraction's result, after the program's own function has made it.
    """

    def __init__(self, terms: Sum | Contraction, arrays: Sequence[AnyArray]) -> None:
        found = terms if isinstance(terms, Contraction) else contraction(terms)
        assert found is not None
        a, b = arrays
        size = dict(zip(found.left + found.right, a.shape + b.shape, strict=True))
        m, k, n = (prod(size[i] for i in part) for part in (found.rows, found.sum, found.columns))
        stack = tuple(size[index] for index in found.stack)
        rows = _axes(found.left, found.stack + found.rows + found.sum)
        columns = _axes(found.right, found.stack + found.sum + found.columns)
        letters = found.stack + found.rows + found.columns
        self._rows = a.shape, rows, (*stack, m, k)
        self._columns = b.shape, columns, (*stack, k, n)
        self._result = tuple(size[i] for i in letters), _axes(letters, found.output), None
        self._back = _axes(found.output, letters)
        self.native_result: Any = None

    def matrices(self, a: AnyArray, b: AnyArray) -> tuple[Any, Any]:
        """The operands as matrices. They may have more axes of length 1 than the contraction."""
        return _arranged(a, *self._rows), _arranged(b, *self._columns)

    def call(self, arrays: Sequence[AnyArray], run: Callable[[], Any], *, is_loop: bool) -> Call:
        """The call of the product. run: makes the contraction as the program does, which for CuPy's
        arrays takes longer than the product of matrices. is_loop: as in `Call`.
        """
        rows, columns = self.matrices(*arrays)
        if type(rows) is not np.ndarray:
            return Call(operator.matmul, rows, columns, (), None, matmul_shape)

        def native() -> Any:
            self.native_result = run()
            shape = *rows.shape[:-1], columns.shape[-1]
            return _arranged(self.native_result, self.native_result.shape, self._back, shape)

        return rearranged(native, rows, columns)._replace(is_loop=is_loop)

    def result(self, product: AnyArray) -> Any:
        """The contraction's result, from the product of the matrices unless `run` has made it."""
        if self.native_result is not None:
            return self.native_result
        return _arranged(product, *self._result)

    def by(self, multiply: Native) -> Callable[..., Any]:
        """The contraction of two arrays of these shapes, by a function that multiplies matrices."""
        return lambda a, b: self.result(multiply(*self.matrices(a, b)))


def _axes(indices: str, order: str) -> Dims | None:
    """The places of indices in another order; None where it is the same."""
    return None if indices == order else tuple(indices.index(index) for index in order)


def _arranged(x: AnyArray, shape: Dims, axes: Dims | None, last: Dims | None) -> Any:
    """An array of a shape, its axes in another order, and then of the last shape."""
    if x.shape != shape:
        x = x.reshape(shape)
    if axes is not None:
        x = x.transpose(axes)
    return x if last is None or x.shape == last else x.reshape(last)
