"""Our schemes as contenders: through the path that a user takes, and their two parts alone."""

from dataclasses import replace
from typing import Any

import numpy as np

import mixpert_py
from mixpert_py.bench.arrays import Array
from mixpert_py.bench.gemm.contender import Contender, Parts
from mixpert_py.runtime.context import current, use
from mixpert_py.runtime.gpu import slices
from mixpert_py.runtime.gpu.event_clock import Call
from mixpert_py.runtime.packing import by_columns, by_rows
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get
from mixpert_py.runtime.tracing.trace import Trace


def contender(name: str, block: int | None = None, backend: str | None = None) -> Contender:
    """A scheme as a contender: `mixpert_py.matmul(a, b, scheme=name)`.

    backend: the backend that makes the product, whether it is profitable or not.
    """

    def prepare(a: Array, b: Array) -> Parts:
        def whole() -> Any:
            return mixpert_py.matmul(a, b, scheme=name, block=block, backend=backend)

        return Parts(whole, *_parts(a, b, name, block))

    return Contender(name, "scheme", prepare)


def ran(a: Array, b: Array, name: str, block: int | None = None) -> str:
    """The name of what runs for these operands, with the reason where it is not the scheme."""
    trace = Trace()
    with use(replace(current(), trace=trace)):
        mixpert_py.matmul(a, b, scheme=name, block=block)
    (site,) = trace.sites.values()
    (scheme,) = site.schemes
    return f"{scheme} ({', '.join(site.reasons)})" if site.reasons else scheme


def _parts(a: Array, b: Array, name: str, block: int | None) -> tuple[Call, Call] | tuple[()]:
    """The calls that pack both operands and that multiply them packed; none without a GPU."""
    scheme = get(name)
    if not isinstance(scheme, Scheme) or isinstance(a, np.ndarray):
        return ()
    kernels, scheme = slices.cuda_kernels(), scheme.with_block(block)
    out = kernels.xp.empty((len(a) if a.ndim == 3 else 1, a.shape[-2], b.shape[-1]), a.dtype)
    stream = kernels.xp.cuda.get_current_stream().ptr

    def pack() -> Any:
        return kernels.pack(
            by_rows(a), by_columns(b), scheme, rule="loss", measure=False, stream=stream
        )

    left, right = pack()
    return pack, lambda: kernels.gemm(left, right, scheme, out, stream=stream)
