"""`execute`: one product, from the call as the program wrote it to the array.

1. `select.resolve_scheme` says under which scheme, and by which backend, or why neither.
2. The backend makes the product: `reference.emulation.multiply` in NumPy, `gpu.multiply.multiply`
   of arrays on a GPU, `gpu.transfer.multiply` of NumPy arrays that are moved there. On a GPU these
   are `partition` (several devices, the workspace limit), and for each part pack, gemm and repair.
3. The result goes where the call wants it.
"""

import numpy as np

from mixpert_py.runtime.context import Choice, Context
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Call, Product, Settings
from mixpert_py.runtime.select import REPORTED, Selection, resolve_scheme


def execute(
    call: Call, settings: Settings, choice: Choice, context: Context, *, traced: bool = False
) -> Product | Reason | None:
    """The product by the scheme that was chosen, or the reason why the native call must make it.

    None where the native product was asked for, or nobody asked for another.

    Raises DeviceError where operands of a chosen scheme are on different devices.
    """
    selection = resolve_scheme(call, settings, choice, context, traced=traced)
    if not isinstance(selection, Selection):
        return selection
    if selection.scope is None:
        product = selection.backend(selection.request)
    else:
        with selection.scope():
            product = selection.backend(selection.request)
            if isinstance(product, Product) and selection.give_back is not None:
                product = product.with_value(selection.give_back(product.value))
    if isinstance(product, Reason):
        return product if selection.is_chosen or product in REPORTED else None
    out = selection.request.out
    if type(out) is np.ndarray and product.value is not out:
        np.copyto(out, product.value)
        return product.with_value(out)
    return product
