"""Products of Dask arrays: Dask's own blockwise graph, with a product of the runtime for each pair
of blocks.

Nothing is computed here: a product of Dask arrays is a Dask array, with the chunks, the dtype and
the kind of blocks that the program's own call gives. The context in force here is a part of the
graph, since a worker has none. Dask is imported only where a program has made such an array.

Blocks are traced, too. A task carries the `Origin` of the trace that was in force where its product
was written, and sends its records as soon as it is done: directly into the trace, where the task
runs in the trace's own process, or as an event of its worker, which reaches the client before the
task's result does. The pool of Dask's own process scheduler has no way back: products there are in
no trace. A block that is computed twice counts twice; the records of a lost worker were sent.
"""

import os
import pickle
import sys
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from typing import Any

import numpy as np

from mixpert_py.runtime.arrays import AnyArray, is_single
from mixpert_py.runtime.backends import is_on_gpu, require_backend
from mixpert_py.runtime.context import Context, current, use
from mixpert_py.runtime.products.rearranged import expand, pairs_of, read
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Call, Native, Settings, dot_shape, is_dask, matmul_shape
from mixpert_py.runtime.schemes import get
from mixpert_py.runtime.tracing.trace import Trace

ROW, DEPTH, COLUMN = range(3)  # names of a matrix product's axes; those of stacks are negative
TOPIC = "mixpert-trace"
MAX_TRACES = 8  # that the tasks of one worker belong to at a time

# The traces of this process, by name, and the clients that receive records from workers.
_own: weakref.WeakValueDictionary[str, Trace] = weakref.WeakValueDictionary()
_clients: weakref.WeakSet[Any] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class Origin:
    """The address of a trace: its name in a process."""

    name: str
    process: int
    levels: tuple[str, ...] | None

    def __reduce__(self) -> tuple[Any, ...]:
        if self.process == os.getpid():
            _subscribe()  # for a client that was made after the product was written
        return Origin, (self.name, self.process, self.levels)

    def trace(self) -> Trace:
        """The trace of this process that collects records for it."""
        return _collecting(self.name, self.levels)

    def send(self, trace: Trace) -> None:
        """Send the records that have been collected."""
        sites = trace.take()
        if not sites:
            return
        if self.process == os.getpid() and (ours := _own.get(self.name)) is not None:
            ours.merge(sites)
        elif (worker := _distributed("get_worker")) is not None:
            worker.log_event(TOPIC, pickle.dumps((self.name, sites)))


def origin_of(trace: Trace | None) -> Origin | None:
    """The address to which tasks are to send their records."""
    if trace is None:
        return None
    _own[trace.name] = trace
    return Origin(trace.name, os.getpid(), trace.levels)


@lru_cache(MAX_TRACES)
def _collecting(name: str, levels: tuple[str, ...] | None) -> Trace:
    """One trace for all tasks of this process, so that calls are sampled across tasks."""
    return Trace(levels)


def _subscribe() -> None:
    """Let the current client, if there is one, receive records; one client for each scheduler."""
    client = _distributed("default_client")
    if client is None:
        return
    subscribed = {_scheduler(other) for other in _clients if other.status == "running"}
    if _scheduler(client) not in subscribed:
        _clients.add(client)
        client.subscribe_topic(TOPIC, lambda event: _receive(event[1]))


def _scheduler(client: Any) -> str | None:
    """The address of a client's scheduler; None before it is connected."""
    return getattr(client.scheduler, "address", None)


def _receive(content: bytes) -> None:
    """Add records to their trace. They are a pickle, as is every result of a task of the sender."""
    name, sites = pickle.loads(content)
    if (trace := _own.get(name)) is not None:
        trace.merge(sites)


def _distributed(function: str) -> Any | None:
    """What a function of `distributed` returns; None where it raises, or is not imported."""
    try:
        return getattr(sys.modules.get("distributed"), function)()
    except (AttributeError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Block:
    """Multiplies blocks, wherever a task of the graph runs.

    function: the runtime's, with all of its arguments but the blocks. summed: the number of summed
    axes, which stand last in the result with length 1. settings: of the site, under the context
    where the product was written. origin: the address of the trace that its calls belong to.
    """

    function: Native
    summed: int
    settings: Settings
    origin: Origin | None

    def __call__(self, *blocks: AnyArray) -> Any:
        trace = None if self.origin is None else self.origin.trace()
        scheme, backend, site, _ = self.settings
        if scheme is None and not is_single(*(x.dtype.name for x in blocks)):
            scheme = "native"  # as these blocks are where nobody looks on
        with use(Context(scheme, backend=backend, trace=trace)):
            product = self.function(*blocks, site=site)
        if self.origin is not None and trace is not None:
            self.origin.send(trace)
        return product[(..., *(None,) * self.summed)]


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
    left = (*range(-rows.ndim, -2), ROW, DEPTH) if rows.ndim > 1 else (DEPTH,)
    right = (*range(-b.ndim, -2), DEPTH, COLUMN) if b.ndim > 1 else (DEPTH,)
    out = (
        *range(-max(rows.ndim, b.ndim), -2),
        *(axis for axis in (ROW, COLUMN) if axis in left + right),
    )
    result = _blockwise(settings, matmul, (rows, b), (left, right), out, wanted)
    if pairs_all:
        axes = list(range(result.ndim - 2))
        axes.insert(a.ndim - 2, result.ndim - 2)
        result = result.transpose(*axes, result.ndim - 1)
    return _stored(result, settings)


def tensordot(
    run: Callable[[], Any], a: object, b: object, axes: object, settings: Settings, function: Native
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
    first = tuple(range(arrays[0].ndim))
    summed = dict(zip(right, left, strict=True))
    second = tuple(summed.get(j, arrays[0].ndim + j) for j in range(arrays[1].ndim))
    out = tuple(axis for axis in first + second if axis not in left)
    block = partial(function, axes=(left, right))
    return _stored(_blockwise(settings, block, arrays, (first, second), out, wanted), settings)


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
        x.rechunk(
            {
                axis: chunks[letter]
                for axis, letter in enumerate(letters)
                if letter in chunks and sum(chunks[letter]) == x.shape[axis]
            }
        )
        for x, letters in zip(arrays, terms.inputs, strict=True)
    )
    block = partial(function, f"{','.join(terms.inputs)}->{terms.output}", **options)
    result = _blockwise(settings, block, arrays, terms.inputs, terms.output, wanted)
    return _stored(result, settings)


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
    if not is_on_gpu(backend):  # which is for each worker to have
        require_backend(backend)
    get(scheme or "native")
    if context.trace is not None or scheme not in (None, "native"):
        return True
    unchosen = scheme is None and is_single(*(x.dtype.name for x in arrays))
    return unchosen or (scheme is None and backend is not None)


def _blockwise(
    settings: Settings,
    function: Native,
    arrays: Sequence[Any],
    indices: Sequence[Sequence[Hashable]],
    out: Sequence[Hashable],
    wanted: Any,
) -> Any:
    """The products of all pairs of blocks with common indices, added over those that `out` lacks.

    function: as in `Block`. indices: the name of each axis of the arrays. wanted: the program's
    own result.
    """
    import dask.array as da
    from dask.array.utils import meta_from_array

    summed = tuple(dict.fromkeys(axis for index in indices for axis in index if axis not in out))
    context = current()
    choice = context.choice(settings.site)
    there = Settings(
        settings.scheme or choice.scheme, settings.backend or context.backend, settings.site
    )
    block = Block(function, len(summed), there, origin_of(context.trace))
    ndim = len(out) + len(summed)
    result = da.blockwise(
        block,
        (*out, *summed),
        *[part for pair in zip(arrays, map(tuple, indices), strict=True) for part in pair],
        token="mixpert-product",
        adjust_chunks=dict.fromkeys(summed, 1),
        dtype=wanted.dtype,
        meta=meta_from_array(wanted._meta, ndim=ndim, dtype=wanted.dtype),
        concatenate=False,
    )
    if not summed:
        return result
    # As dask.array.matmul adds blocks: they are not concatenated, which saves memory.
    axes = tuple(range(len(out), ndim))
    return da.reduction(result, _added, _added, axes, dtype=result.dtype, concatenate=False)


def _added(blocks: AnyArray | list[Any], axis: tuple[int, ...], keepdims: bool) -> Any:
    """The sum of blocks, or of lists of them, that have length 1 along the axes, in their order."""
    while isinstance(blocks, list) and isinstance(blocks[0], list):
        blocks = [block for part in blocks for block in part]
    total: Any = reduce(np.add, blocks) if isinstance(blocks, list) else blocks
    return total if keepdims else total.squeeze(axis)


def _stored(result: AnyArray, settings: Settings) -> Any:
    """The product, stored in the trace of a run that is judged by it; it is computed when read."""
    trace = current().trace
    if trace is not None and settings.site in trace.keep and 0 not in result.shape:
        trace.keep_result(settings.site, result)
    return result
