"""Products by a backend of the GPU, asked for by the fields of a request."""

from typing import Any

from mixpert_py.runtime.call import Product, Request
from mixpert_py.runtime.cuda import multiply, transfer
from mixpert_py.runtime.in_force import current
from mixpert_py.runtime.tracing.trace import Reason


def multiplied(
    a: Any, b: Any, scheme: str, *, limit: int | None = None, **given: Any
) -> Product | Reason:
    """A·B of arrays that are on the GPU. limit: bytes of workspace."""
    return multiply.multiply_divided(Request(a, b, scheme, workspace_limit=limit, **given))


def transferred(a: Any, b: Any, scheme: str, **given: Any) -> Product | Reason:
    """A·B of NumPy arrays, which are moved, under the context in force."""
    force = current()
    how = {"workspace_limit": force.workspace_limit, "constant": force.constant}
    return transfer.multiply(Request(a, b, scheme, **{**how, **given}))
