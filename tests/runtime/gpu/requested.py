"""Products by a backend of the GPU, asked for by the fields of a request."""

from typing import Any

from mixpert_py.runtime.gpu import multiply, transfer
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Product, Request


def multiplied(a: Any, b: Any, scheme: str, **given: Any) -> Product | Reason:
    return multiply.multiply(Request(a, b, scheme, **given))


def transferred(a: Any, b: Any, scheme: str, **given: Any) -> Product | Reason:
    return transfer.multiply(Request(a, b, scheme, **given))
