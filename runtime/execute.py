"""`execute`: one product, from the call in the program to the array.

1. `select.resolve_scheme` chooses the scheme and the backend, or says why there is none. Decisions
   that hold for every call of the signature are cached, see `signatures`: later calls begin with
   step 2.
2. Prepared launches make the product if there are any, see `gpu.prepared`. Otherwise the backend
   makes it: `reference.emulation.multiply` in NumPy, `gpu.multiply.multiply` for arrays on a GPU,
   `gpu.transfer.multiply` for NumPy arrays that are moved there. On a GPU these are pack, gemm and
   repair.
3. The result goes where the call wants it.
"""

import math
from contextlib import nullcontext
from itertools import repeat
from typing import Any

import numpy as np

from mixpert_py.runtime.arrays import AnyArray
from mixpert_py.runtime.context import Choice, Context
from mixpert_py.runtime.plan_guard import PlanGuard
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.reference.emulation import is_apart
from mixpert_py.runtime.request import Call, Product, Settings
from mixpert_py.runtime.select import (
    REPORTED,
    Declined,
    Selection,
    resolve_scheme,
    takes_result_on_device,
    takes_tensors,
)
from mixpert_py.runtime.signatures import NATIVE, Known, keep, signature_of
from mixpert_py.runtime.worth import MAX_WORK_TO_REST, RESTED


def execute(
    call: Call, settings: Settings, choice: Choice, context: Context, *, traced: bool = False
) -> Product | Reason | None:
    """The product by the chosen scheme, or the reason for the native product.

    None if the native product was asked for, or no scheme was. Raises DeviceError if operands of a
    chosen scheme are on different devices.
    """
    signature = None if traced else signature_of(call, settings, takes_tensors(call))
    known = None if signature is None else context.known.get(signature)
    if known is NATIVE:
        return None
    guard = choice.guard
    if guard is not None and not traced and guard.refuses:
        return Reason.OUTSIDE_PLAN
    value = None if known is None else known(call.a, call.b)
    if value is NATIVE:
        return None
    if value is not None and (call.out is None or takes_result_on_device(call.out, call)):
        scheme = getattr(known, "scheme", choice.scheme or "faithful")  # of prepared launches
        return Product(_into(call.out, value), scheme)
    selection = resolve_scheme(call, settings, choice, context, traced=traced)
    if signature is not None:  # anew: how to ask these arrays for their device may just be known
        signature = signature_of(call, settings, takes_tensors(call))
    if isinstance(selection, Declined):
        if selection.known is not None and signature is not None:
            keep(context, signature, selection.known)
        if selection.reason is Reason.NO_TENSOR_CORE:
            context.warn_without_gpu(choice.scheme)
        return selection.reason
    guard = None if selection.request.scheme == "exact" else guard  # which lowers nothing
    if signature is not None and selection.library is not None:
        value = _by_prepared(selection, call, context, signature, guard)
        if value is not None and value is not NATIVE:
            return Product(_into(call.out, value), selection.request.scheme)
    if selection.scope is None:
        product = selection.backend(selection.request)
    else:
        with selection.scope():
            product = selection.backend(selection.request)
            if isinstance(product, Product) and not product.reason and selection.give_back:
                product = product.with_value(selection.give_back(product.value))
    if isinstance(product, Reason):
        if selection.request.scheme == "exact" and not traced:
            _rest(call, settings, context, signature)
        return product if selection.is_chosen or product in REPORTED else None
    if product.reason is not None:
        return product
    out = selection.request.out
    if guard is not None:
        # Once the product lies where an operand was, no native one can be made.
        native_fits = type(out) is np.ndarray and is_apart(out, call.a, call.b)
        is_final = product.value is out and not native_fits
        if not is_final and not guard.holds(call.a, call.b, product.value):
            return Reason.OUTSIDE_PLAN
    if type(out) is np.ndarray and product.value is not out:
        np.copyto(out, product.value)
        return product.with_value(out)
    return product


def _rest(call: Call, settings: Settings, context: Context, signature: object) -> None:
    """Make the next small products of integers at a site natively: each look at one takes long."""
    if call.a.shape[-2] * math.prod(call.b.shape) > MAX_WORK_TO_REST:
        return
    calls = repeat(NATIVE, RESTED)
    if signature is None:
        context.resting[settings.site] = calls
    else:
        keep(context, signature, lambda *_: next(calls, None))


def _into(out: AnyArray | None, value: object) -> Any:
    """Return `out` with a product in it, which `select` has checked; without `out`, the product."""
    if out is None:
        return value
    out[...] = value
    return out


class _Watched:
    """Launches that a plan chose; NATIVE after one of their products was found to be inaccurate."""

    __slots__ = ("guard", "launches")

    def __init__(self, launches: Known, guard: PlanGuard) -> None:
        self.launches, self.guard = launches, guard

    def __call__(self, a: AnyArray, b: AnyArray) -> Any:
        if self.guard.refuses:
            return NATIVE
        value = self.launches(a, b)
        if value is None or value is NATIVE or self.guard.holds(a, b, value):
            return value
        return NATIVE


def _by_prepared(
    selection: Selection, call: Call, context: Context, signature: object, guard: PlanGuard | None
) -> Any:
    """The product by launches that are cached for its signature from now on; None if launches
    cannot make it.
    """
    from mixpert_py.runtime.gpu.prepared import prepare

    assert selection.library is not None
    with (selection.scope or nullcontext)():
        launches = prepare(selection.library, selection.request, is_chosen=selection.is_chosen)
        is_new = launches.add(selection.request, call.a, call.b)
    kept = context.known.get(signature)
    if not is_new and launches is (kept.launches if isinstance(kept, _Watched) else kept):
        return None  # it has been asked already
    known: Known = launches if guard is None else _Watched(launches, guard)
    value = known(call.a, call.b)
    if value is not None:
        keep(context, signature, known)
    return value
