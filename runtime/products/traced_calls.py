"""Calls of rewritten code in functions that `torch.compile` compiles.

Dynamo, which reads a function's bytecode, takes such a call for that of the program's own product,
and notes the call site beside it: the pass over graphs (`passes.fx`) finds the note, in the forward
and in the backward pass. A call that has no product of PyTorch's to stand for it is made as it is:
what comes before and after it becomes a graph each.
"""

import operator
from collections.abc import Callable, Mapping
from importlib import import_module
from types import FunctionType
from typing import Any

import numpy as np
import torch

NOTE = "mixpert"  # the key of the note in a node's `custom` field
OWN = ("scheme", "block", "backend")

# The modules whose functions rewritten code calls.
MODULES = (
    "api",
    "products.blas",
    "products.einsum",
    "products.in_place",
    "products.inner",
    "products.multi_dot",
    "products.tensordot",
    "products.tensors",
    "products.xp",
)


def _method(a: Any, b: Any, *rest: Any, **named: Any) -> Any:
    return a.dot(b, *rest, **named)


# What a call without a function `native` is in a graph. Dynamo knows NumPy's functions where code
# looks them up alone.
NATIVE: Mapping[str, Callable[..., Any]] = {
    "dot": lambda *operands, **named: np.dot(*operands, **named),
    "dot_method": _method,
    "einsum": lambda *operands, **named: np.einsum(*operands, **named),
    "imatmul": operator.imatmul,
    "matrix_power": lambda *operands: np.linalg.matrix_power(*operands),
    "inner": lambda *operands, **named: np.inner(*operands, **named),
    "multi_dot": lambda *operands, **named: np.linalg.multi_dot(*operands, **named),
    "tensordot": lambda *operands, **named: np.tensordot(*operands, **named),
}
_done = False


def follow() -> None:
    """Tell Dynamo, once, what the runtime's functions are in a graph. PyTorch's compiler must have
    been imported. Does nothing for a version whose Dynamo cannot be told.
    """
    global _done
    if _done:
        return
    substitute = getattr(torch.compiler, "substitute_in_graph", None)
    _done = True
    for name in MODULES:
        module = import_module(f"mixpert_py.runtime.{name}")
        for function in list(vars(module).values()):
            if not isinstance(function, FunctionType) or function.__module__ != module.__name__:
                continue
            native = _native_of(function)
            if native is None or substitute is None:
                function._torchdynamo_disable = True  # type: ignore[attr-defined]
            else:
                substitute(function, skip_signature_check=True)(_traced(native))
            skip(function)  # where it is not read in a graph, it is called from between two


def _native_of(function: FunctionType) -> Callable[..., Any] | None:
    """The native function that replaces a call of this function in a graph, unless the call
    names one; None if the function is not a product.
    """
    function = getattr(function, "__wrapped__", function)  # what `trimmed` has been given
    defaults = function.__kwdefaults__ or {}
    if function.__name__.startswith("_") or "site" not in defaults:
        return None
    code = function.__code__
    takes_native = "native" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    default = operator.matmul if takes_native else None
    return NATIVE.get(function.__name__, default)


def _traced(default: Callable[..., Any]) -> Callable[..., Any]:
    """The function that Dynamo reads in the place of one of the runtime's."""

    def noted(
        *operands: Any,
        native: Any = None,
        site: Any = None,
        scheme: Any = None,
        block: Any = None,
        backend: Any = None,
        **named: Any,
    ) -> Any:
        note = {"site": site, "scheme": scheme, "block": block, "backend": backend}
        # Dynamo knows the function by this name alone.
        with torch.fx.traceback.annotate({NOTE: note}):
            return (default if native is None else native)(*operands, **named)

    def plain(
        *operands: Any,
        native: Any = None,
        site: Any = None,
        scheme: Any = None,
        block: Any = None,
        backend: Any = None,
        **named: Any,
    ) -> Any:
        return (default if native is None else native)(*operands, **named)

    return noted if hasattr(torch.fx.traceback, "annotate") else plain  # from 2.9 on


def skip(function: Any) -> None:
    """Make Dynamo skip calls of a function, and all calls below them."""
    try:
        dynamo: Any = import_module("torch._C._dynamo.eval_frame")
        skip = dynamo._FrameExecStrategy(dynamo._FrameAction.SKIP, dynamo._FrameAction.SKIP)
        set_strategy = dynamo.set_code_exec_strategy
    except (AttributeError, ImportError):
        return
    set_strategy(function.__code__, skip)
