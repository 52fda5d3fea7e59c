"""Products of Dask arrays: Dask's own blockwise graph, with a product of the runtime for each pair
of blocks.

Nothing is computed here: a product of Dask arrays is a Dask array, with the chunks, the dtype and
the kind of blocks that the program's own call gives. The context in force here is a part of the
graph, since a worker has none. Dask is imported only where a program has made such an array.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np

from mixpert_py.runtime.arrays import AnyArray
from mixpert_py.runtime.context import Context, current, require_backend, use
from mixpert_py.runtime.dtypes import is_single
from mixpert_py.runtime.products.contraction import expand, read
from mixpert_py.runtime.products.rearranged import pairs_of
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Call, Native, Settings, dot_shape, is_dask, matmul_shape
from mixpert_py.runtime.schemes import get
from mixpert_py.runtime.tracing.remote_trace import Origin, origin_of

Index = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """Multiplies blocks, wherever a task of the graph runs, under the context of its site.

    function: the runtime's `matmul`, `tensordot` or `einsum`. first: the argument before blocks, if
    there is one. summed: the positions in the result of the summed axes, of length 1, along which
    the results of blocks are added. origin: the address of the trace that its calls belong to.
    """

    function: Native
    first: tuple[str, ...]
    options: Mapping[str, Any]
    summed: Index
    context: Context
    site: str | None
    origin: Origin | None

    def __call__(self, *blocks: AnyArray) -> Any:
        trace = None if self.origin is None else self.origin.trace()
        scheme = self.context.scheme
        if scheme is None and not is_single(*(x.dtype.name for x in blocks)):
            scheme = "native"  # as these blocks are where nobody looks on
        with use(replace(self.context, scheme=scheme, trace=trace)):
            product = self.function(*self.first, *blocks, site=self.site, **self.options)
        if self.origin is not None and trace is not None:
            self.origin.send(trace)
        axes = range(product.ndim + len(self.summed))
        return product[tuple(None if axis in self.summed else slice(None) for axis in axes)]


def product(call: Call, settings: Settings, matmul: Native) -> Any | None:
    """A product of matmul or dot, as a Dask array; None where the call is to run unchanged.

    matmul: the runtime's function, for blocks. Raises the call's own exceptions, and PlanError for
    an unknown scheme or backend.
    """
    if call.destination is not None or call.shape_of not in (matmul_shape, dot_shape):
        return None
    wanted = call.run()
    arrays = _arrays(wanted, call.a, call.b)
    if arrays is None or not _may_differ(arrays, settings):
        # It is what the call would make; a trace has that made once more, to record it.
        return wanted if current().trace is None else None
    a, b = arrays
    # np.dot multiplies each matrix of a with each one of b.
    pairs_all = call.shape_of is dot_shape and a.ndim > 1 and b.ndim > 2
    rows = a[(..., *(None,) * (b.ndim - 2), slice(None), slice(None))] if pairs_all else a
    result = _matmul((rows, b), partial(_block, settings, matmul), wanted)
    if pairs_all:
        axes = list(range(result.ndim - 2))
        axes.insert(a.ndim - 2, result.ndim - 2)
        result = result.transpose(*axes, result.ndim - 1)
    return _stored(result, settings)


def tensordot(
    run: Callable[[], Any],
    a: object,
    b: object,
    axes: object,
    settings: Settings,
    function: Native,
) -> Any | None:
    """The tensordot that `run` returns, as a Dask array. None and errors as in `product`."""
    # Looked up at this depth of calls, a warning of a stale plan names the program's own line.
    current().choice(settings.site)
    if type(axes) not in (int, list, tuple):
        return None  # an iterator can be read once
    wanted = run()
    arrays = _arrays(wanted, a, b)
    if arrays is None or not _may_differ(arrays, settings):
        return None
    pairs = pairs_of(arrays[0], arrays[1], axes)
    if isinstance(pairs, Reason):
        return None
    left, right = map(tuple, pairs)
    # As in dask.array.tensordot, whose sum over blocks this is.
    numbers = [list(range(x.ndim)) for x in arrays]
    numbers[1] = [number + len(numbers[0]) for number in numbers[1]]
    for i, j in zip(left, right, strict=True):
        numbers[1][j] = numbers[0][i]
    free = [number for number in numbers[1] if number >= len(numbers[0])]
    position = {number: at for at, number in enumerate((*numbers[0], *free))}
    indices = [tuple(position[number] for number in operand) for operand in numbers]
    block = _block(settings, function, tuple(sorted(left)), options={"axes": (left, right)})
    result = _blockwise(block, len(position), arrays, indices, wanted)
    return _stored(result.sum(axis=block.summed) if left else result, settings)


def einsum(
    native: Native,
    operands: Sequence[object],
    options: Mapping[str, Any],
    settings: Settings,
    function: Native,
) -> Any | None:
    """native(*operands, **options), an einsum, as a Dask array. None and errors as in `product`."""
    current().choice(settings.site)
    wanted = native(*operands, **options)
    subscripts, given = read(operands)
    arrays = _arrays(wanted, *given)
    if arrays is None or not _may_differ(arrays, settings) or len(arrays) < 2:
        return None
    terms = None if subscripts is None else expand(subscripts, tuple(x.ndim for x in arrays))
    if terms is None or not options.keys() <= {"optimize", "dtype"}:
        return None
    # Dask may cut operands finer so that blocks of the result are no larger than theirs.
    chunks = dict(zip(terms.output, wanted.chunks, strict=True))
    arrays = tuple(
        _cut(x, [chunks.get(letter) for letter in letters])
        for x, letters in zip(arrays, terms.inputs, strict=True)
    )
    sums = "".join(sorted(set("".join(terms.inputs)) - set(terms.output)))
    out = terms.output + sums
    block = _block(
        settings,
        function,
        tuple(range(len(terms.output), len(out))),
        first=(f"{','.join(terms.inputs)}->{terms.output}",),
        options=dict(options),
    )
    numbers = [tuple(out.index(letter) for letter in letters) for letters in terms.inputs]
    result = _blockwise(block, len(out), arrays, numbers, wanted)
    return _stored(result.sum(axis=block.summed) if sums else result, settings)


def _arrays(wanted: AnyArray, *operands: object) -> tuple[Any, ...] | None:
    """The operands as Dask arrays with blocks of NumPy or CuPy.

    None where an operand, or the result of the program's own call, is anything else, or holds no
    floats.
    """
    import dask.array as da

    if not is_dask(wanted) or wanted.dtype.kind not in "fc":
        return None
    arrays = tuple(da.asanyarray(x) for x in operands)
    kinds = {np.ndarray, getattr(sys.modules.get("cupy"), "ndarray", np.ndarray)}
    return arrays if all(type(x._meta) in kinds and x.ndim for x in arrays) else None


def _may_differ(arrays: Sequence[AnyArray], settings: Settings) -> bool:
    """Whether blocks may be multiplied by a scheme or on a GPU, or are traced."""
    context = current()
    scheme = settings.scheme or context.choice(settings.site).scheme
    backend = settings.backend or context.backend
    if backend != "cuda":  # which is for each worker to have
        require_backend(backend)
    get(scheme or "native")
    if context.trace is not None or scheme not in (None, "native"):
        return True
    unchosen = scheme is None and is_single(*(x.dtype.name for x in arrays))
    return unchosen or (scheme is None and backend is not None)


def _block(
    settings: Settings,
    function: Native,
    summed: Index,
    *,
    first: tuple[str, ...] = (),
    options: Mapping[str, Any] | None = None,
) -> Block:
    """The function that multiplies the blocks of a call with these settings."""
    context = current()
    choice = context.choice(settings.site)
    there = Context(
        settings.scheme or choice.scheme,
        backend=settings.backend or context.backend,
    )
    length = settings.block or (choice.block if settings.scheme is None else None)
    given = dict(options or {}) | ({} if length is None else {"block": length})
    return Block(function, first, given, summed, there, settings.site, origin_of(context.trace))


def _matmul(arrays: Sequence[Any], block: Callable[[Index], Block], wanted: AnyArray) -> Any:
    """As dask.array.matmul, which adds blocks without concatenating them, to save memory."""
    import dask.array as da

    a, b = arrays
    rows = a if a.ndim > 1 else a[np.newaxis, :]
    columns = b if b.ndim > 1 else b[:, np.newaxis]
    ndim = max(rows.ndim, columns.ndim)
    rows = rows[(np.newaxis,) * (ndim - rows.ndim)]
    columns = columns[(np.newaxis,) * (ndim - columns.ndim)]
    stack = tuple(range(ndim - 2))
    numbers = [(*stack, ndim - 2, ndim - 1), (*stack, ndim - 1, ndim)]
    result = _blockwise(block((ndim - 1,)), ndim + 1, (rows, columns), numbers, wanted)
    if result.shape[-2] == 1:
        result = result.squeeze(-2)
    else:
        result = da.reduction(
            result, _added, _added, axis=ndim - 1, dtype=result.dtype, concatenate=False
        )
    if a.ndim == 1:
        result = result.squeeze(-2)
    return result.squeeze(-1) if b.ndim == 1 else result


def _blockwise(
    block: Block, ndim: int, arrays: Sequence[Any], indices: Sequence[Index], wanted: Any
) -> Any:
    """The products of all pairs of blocks with common indices, an axis of `ndim` for each index."""
    import dask.array as da
    from dask.array.utils import meta_from_array

    return da.blockwise(
        block,
        tuple(range(ndim)),
        *[part for pair in zip(arrays, indices, strict=True) for part in pair],
        token=f"mixpert-{block.function.__name__}",
        adjust_chunks=dict.fromkeys(block.summed, 1),
        dtype=wanted.dtype,
        meta=meta_from_array(wanted._meta, ndim=ndim, dtype=wanted.dtype),
        concatenate=False,
    )


def _added(blocks: AnyArray | list[Any], axis: Index, keepdims: bool) -> Any:
    """The sum of blocks that have length 1 along the axis, in their order."""
    total: Any = reduce(np.add, blocks) if isinstance(blocks, list) else blocks
    return total if keepdims else total.squeeze(axis[0])


def _cut(x: Any, chunks: Sequence[tuple[int, ...] | None]) -> Any:
    """A Dask array in the chunks that are given for some axes."""
    finer = {
        axis: wanted
        for axis, (wanted, size) in enumerate(zip(chunks, x.shape, strict=True))
        if wanted is not None and sum(wanted) == size and not math.isnan(size)
    }
    return x.rechunk(finer) if finer else x


def _stored(result: AnyArray, settings: Settings) -> Any:
    """The product, stored in the trace of a run that is judged by it; it is computed when read."""
    trace = current().trace
    if trace is not None and settings.site in trace.keep and 0 not in result.shape:
        trace.keep_result(settings.site, result)
    return result
