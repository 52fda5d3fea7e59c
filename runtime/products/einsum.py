"""`einsum`: np.einsum, with each matrix product in it under the scheme in force for the site.

`einops_einsum`: einops.einsum, as the np.einsum that it stands for.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from importlib import import_module
from itertools import chain
from math import prod
from string import ascii_letters
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy import ndarray

from mixpert_py.runtime.api import carry_out, in_force, matmul
from mixpert_py.runtime.arrays import PRECISION, AnyArray, are_whole, is_wide, name_of
from mixpert_py.runtime.backends import is_on_gpu
from mixpert_py.runtime.context import Context, current, innermost, passes
from mixpert_py.runtime.gpu.foreign import on_host
from mixpert_py.runtime.products.rearranged import (
    EINSUM,
    Pair,
    Step,
    Sum,
    as_arrays,
    contraction,
    dtype_reason,
    expand,
    is_replaced,
    not_rearranged,
    path,
    read,
)
from mixpert_py.runtime.program_frames import pass_over, trim, trimmed
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Native, Own, Settings, is_dask
from mixpert_py.runtime.select import are_integers
from mixpert_py.runtime.signatures import NATIVE, device_of, keep, signature_of_contraction
from mixpert_py.runtime.worth import MIN_IN_EINSUM, MIN_LOOP, STEPS_GAIN, are_small

OPTIONS = frozenset({"optimize", "out"})  # with others `native` makes the call


class Problem(NamedTuple):
    """A sum of products of arrays that take schemes, in steps.

    arrays: no index has two sizes; of three and more, all have the dtype of the result.
    """

    terms: Sum
    arrays: tuple[AnyArray, ...]
    steps: tuple[Step, ...]

    def is_cheaper_in_steps(self) -> bool:
        """Whether a loop over all indices at once, as np.einsum makes it, takes far longer."""
        letters, sizes = "".join(self.terms.inputs), [x.shape for x in self.arrays]
        size = dict(zip(letters, chain(*sizes), strict=True))

        def work(terms: Sum) -> int:
            return prod(size[index] for index in set("".join(terms.inputs)))

        in_steps = sum(work(step.terms) for step in self.steps)
        return work(self.terms) >= MIN_LOOP + STEPS_GAIN * in_steps


def einsum(
    *operands: object,
    scheme: str | None = None,
    backend: str | None = None,
    site: str | None = None,
    native: Native = EINSUM,
    **options: Any,
) -> Any:
    """np.einsum(*operands, **options): subscripts and arrays, or arrays and lists of indices.

    operands, options: anything `native` takes. NumPy and CuPy arrays of types that take schemes are
    multiplied as (stacks of) matrices where `contraction` finds a matrix product. More than two are
    contracted in pairs, in the order of np.einsum_path, if a scheme is in force for the site: each
    pair is then a call of the site. Other arguments, result and errors as in `matmul`.
    """
    try:
        context, signature = innermost.get().context, None
        is_free = scheme is None and backend is None
        # Of arrays on a GPU, what is known is asked first: their library takes long.
        is_on_device = bool(operands) and type(operands[-1]) in device_of
        if is_free and not is_on_device and are_small(operands, MIN_IN_EINSUM) and passes(site):
            return native(*operands, **options)
        is_plain = is_free and context.trace is None and options.keys() <= {"optimize"}
        if is_plain and is_on_device and type(operands[0]) is str:
            words = f"{operands[0]} {options}" if options else operands[0]
            signature = signature_of_contraction(site, native, words, operands[1:])
            known = context.known.get(signature)
            if known is not None:
                return native(*operands, **options) if known is NATIVE else known(*operands[1:])
        settings = Settings(scheme, backend, site)
        return _einsum(operands, options, native, settings, context, signature)
    except BaseException as error:  # `trimmed` would be one more call
        trim(error)
        raise


def _einsum(
    operands: Sequence[object],
    options: dict[str, Any],
    native: Native,
    settings: Settings,
    context: Context,
    signature: object,
) -> Any:
    """As `einsum`, of a call that is not known to be native."""
    if is_replaced(native, *operands):
        return native(*operands, **options)
    settings = in_force(settings, context)
    if is_dask(*operands):
        from mixpert_py.runtime.products import dask_array

        if (lazy := dask_array.einsum(native, operands, options, settings, einsum)) is not None:
            return lazy

    def whole(*_: object) -> Any:
        return native(*operands, **options)

    found = _problem(operands, options)
    if isinstance(found, Problem) and len(found.steps) == 1:
        pair = Pair(found.terms, found.arrays)
        call = pair.call(found.arrays, whole, is_loop=not options.get("optimize", False))
        result = pair.result(carry_out(call, settings)[0])
        keep(context, signature, pair.by(partial(matmul, site=settings.site)))
        return result if pair.native_result is not None else _as_wanted(result, options)
    if isinstance(found, Problem) and _is_emulated(settings, found):
        result, later = _in_steps(found, native, options, settings)
        if [x.shape for x in found.arrays] == [x.shape for x in read(operands)[1]]:
            keep(context, signature, partial(_by_steps, found.steps, later))
        trace, site = current().trace, settings.site
        if trace is not None and site in trace.keep and 0 not in result.shape:
            trace.keep_result(site, on_host(result))  # the result of all steps, not of the last
        return _as_wanted(result, options)
    is_loop = type(operands[-1]) is ndarray and not options.get("optimize", False)
    reason = Reason.LOOP if is_loop else Reason.DIMENSIONS
    reason = found if isinstance(found, Reason) else reason
    keep(context, signature, NATIVE)
    return carry_out(not_rearranged(whole, *_examples(operands), reason), settings)[0]


pass_over(einsum, _einsum)


def _examples(operands: Sequence[object]) -> tuple[object, object]:
    """Two of the operands, first those that show why no scheme is taken."""
    _, arrays = read(operands)
    first, *others = [x for x in arrays if as_arrays(x) is None] or arrays or (None,)
    return first, others[-1] if others else first


def _problem(operands: Sequence[object], options: Mapping[str, Any]) -> Problem | Reason:
    """The meaning of the arguments, or the reason why `native` computes them."""
    subscripts, given = read(operands)
    arrays = as_arrays(*given) if given else None
    if arrays is None:
        return Reason.NOT_AN_ARRAY
    if any(x.ndim == 0 for x in arrays):
        return Reason.SCALAR
    reason = dtype_reason(*arrays)
    if reason is not None:
        return reason
    if not options.keys() <= (OPTIONS if type(arrays[0]) is ndarray else {"optimize"}):
        return Reason.ARGUMENT
    if options.get("optimize", False) and len(arrays) > 2 and are_integers(*arrays):
        return Reason.ARGUMENT  # np.einsum multiplies each pair in that pair's own type
    terms = expand(subscripts, tuple(x.ndim for x in arrays)) if subscripts is not None else None
    if terms is None or len(arrays) < 2:
        return Reason.DIMENSIONS
    squeezed = _squeezed(terms, arrays)
    if isinstance(squeezed, Reason):
        return squeezed
    terms, squeezed_arrays, shape = squeezed
    steps = path(terms, tuple(x.shape for x in squeezed_arrays), options.get("optimize", False))
    if len(arrays) == 2 and steps is not None:
        steps = (Step((0, 1), terms),)
    if steps is None or not any(contraction(step.terms) for step in steps):
        return Reason.DIMENSIONS
    if len(arrays) > 2:
        dtype = np.result_type(*(x.dtype for x in arrays))
        if not (name_of(dtype) in PRECISION or are_whole(name_of(dtype))):
            return Reason.DTYPE
        squeezed_arrays = tuple(x.astype(dtype, copy=False) for x in squeezed_arrays)
    reason = _out_reason(options.get("out"), arrays, shape)
    return reason if reason is not None else Problem(terms, squeezed_arrays, steps)


def _squeezed(
    terms: Sum, arrays: Sequence[AnyArray]
) -> tuple[Sum, tuple[AnyArray, ...], tuple[int, ...]] | Reason:
    """The operands without axes of 1 that would be broadcast, and the shape of the result."""
    sizes: dict[str, int] = {}
    for letters, x in zip(terms.inputs, arrays, strict=True):
        for index, size in zip(letters, x.shape, strict=True):
            known = sizes.get(index, 1)
            if size not in (1, known) and known != 1:
                return Reason.SHAPE
            sizes[index] = size if known == 1 else known
    inputs, squeezed = [], []
    for letters, x in zip(terms.inputs, arrays, strict=True):
        repeated = [size != sizes[i] for i, size in zip(letters, x.shape, strict=True)]
        if any(repeated) and len(set(letters)) < len(letters):
            return Reason.SHAPE  # a diagonal of a matrix that is not square
        inputs.append("".join(i for i, gone in zip(letters, repeated, strict=True) if not gone))
        squeezed.append(x[tuple(0 if gone else slice(None) for gone in repeated)])
    return Sum(tuple(inputs), terms.output), tuple(squeezed), tuple(sizes[i] for i in terms.output)


def _out_reason(out: object, given: Sequence[AnyArray], shape: tuple[int, ...]) -> Reason | None:
    """The reason why a call with this `out` is left to `native`; None if the result goes there."""
    if out is None:
        return None
    dtype = np.result_type(*(x.dtype for x in given))
    if type(out) is not ndarray or out.shape != shape or out.dtype != dtype:
        return Reason.OUT
    overlaps = any(np.may_share_memory(out, x) for x in given)
    return None if out.flags.writeable and not overlaps else Reason.OUT


def _as_wanted(result: Any, options: Mapping[str, Any]) -> Any:
    """The result in the program's `out`, or in the memory order of np.einsum."""
    out = options.get("out")
    if out is not None:
        np.copyto(out, result)
        return out
    # A scalar has no order.
    is_whole = type(result) is ndarray and are_integers(result)
    return np.ascontiguousarray(result) if is_whole else result


def _is_emulated(settings: Settings, found: Problem) -> bool:
    """Whether a scheme is in force for three or more operands; otherwise `native` contracts
    them.
    """
    scheme = settings.scheme or current().choice(settings.site).scheme
    is_whole = are_integers(*found.arrays)
    if scheme is None and is_whole:  # any order of sums has the same bits
        return found.is_cheaper_in_steps()
    if scheme is not None:
        return scheme != "native" and (scheme != "exact" or is_whole)
    backend = settings.backend or current().backend
    is_single = not is_wide(*(name_of(x.dtype) for x in found.arrays))
    return is_single and (is_on_gpu(backend) or type(found.arrays[0]) is not ndarray)


def _in_steps(
    found: Problem, native: Native, options: Mapping[str, Any], settings: Settings
) -> tuple[Any, list[Native]]:
    """The result, by calls of the site for the contractions of the path, and the functions that
    contract other arrays like these on a GPU.
    """
    given = {"optimize": True} if options.get("optimize", False) is not False else {}
    later: list[Native] = []

    def contract(terms: Sum, is_last: bool, *arrays: AnyArray) -> Any:
        run = partial(native, f"{','.join(terms.inputs)}->{terms.output}", **given)
        own = settings._replace(more_follow=not is_last)
        if contraction(terms) is None:
            later.append(run)
            call = not_rearranged(lambda *_: run(*arrays), arrays[0], arrays[-1], Reason.DIMENSIONS)
            return carry_out(call, own)[0]
        pair = Pair(terms, arrays)
        later.append(pair.by(partial(matmul, site=settings.site)))
        call = pair.call(arrays, partial(run, *arrays), is_loop=True)
        return pair.result(carry_out(call, own)[0])

    last = found.steps[-1]
    first = [partial(contract, step.terms, step is last) for step in found.steps]
    return _by_steps(found.steps, first, *found.arrays), later


def _by_steps(steps: Sequence[Step], contracts: Sequence[Native], *arrays: AnyArray) -> Any:
    remaining = list(arrays)
    for step, contract in zip(steps, contracts, strict=True):
        taken = [remaining[at] for at in step.positions]
        remaining = [x for at, x in enumerate(remaining) if at not in step.positions]
        remaining.append(contract(*taken))
    return remaining[0]


@trimmed
def einops_einsum(
    *operands: object, native: Native, site: str | None = None, **own: Unpack[Own]
) -> Any:
    """einops.einsum(*arrays, pattern): products of arrays whose axes have names.

    operands: anything `native` takes. NumPy and CuPy arrays under a pattern of plain names are
    multiplied as in `einsum`. Other arguments, result and errors as in `matmul`.
    """
    *arrays, pattern = operands
    compact = subscripts(pattern) if arrays and type(pattern) is str else None
    if compact is None or as_arrays(*arrays) is None:
        return native(*operands)

    return einsum(compact, *arrays, native=_as_einsum(native, compact, pattern), site=site, **own)


@lru_cache
def _as_einsum(native: Native, compact: str, pattern: str) -> Native:
    """einops's function as np.einsum: one object, by which calls are known again."""

    def contract(letters: str, *factors: object, **options: object) -> Any:
        if letters == compact and not options:
            return native(*factors, pattern)
        library: Any = np if isinstance(factors[0], np.ndarray) else import_module("cupy")
        return library.einsum(letters, *factors, **options)

    contract.fun = EINSUM  # type: ignore[attr-defined]  # which it stands for
    return contract


@lru_cache
def subscripts(pattern: str) -> str | None:
    """The subscripts of np.einsum that a pattern of einops means; None for any but plain names."""
    left, arrow, right = pattern.partition("->")
    letters: dict[str, str] = {}
    terms = []
    for term in (*left.split(","), right):
        axes = term.split()
        if not all(axis.isidentifier() for axis in axes):
            return None
        for axis in axes:
            if axis not in letters and len(letters) == len(ascii_letters):
                return None
            letters.setdefault(axis, ascii_letters[len(letters) % len(ascii_letters)])
        terms.append("".join(letters[axis] for axis in axes))
    return f"{','.join(terms[:-1])}->{terms[-1]}" if arrow else None
