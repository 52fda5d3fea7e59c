"""Calls of rewritten code in functions that `torch.compile` compiles.

Dynamo, which reads a function's bytecode, takes such a call for that of the program's own product,
and notes the call site beside it: the pass over graphs (`passes.fx`) finds the note, in the forward
and in the backward pass. A call that has no product of PyTorch's to stand for it is made as it is:
what comes before and after it becomes a graph each.
"""

import operator
from collections.abc import Callable
from importlib import import_module
from types import FunctionType
from typing import Any

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
    "products.vectors",
    "products.xp",
)


def _method(a: Any, b: Any, *rest: Any, **named: Any) -> Any:
    return a.dot(b, *rest, **named)


# Functions without a parameter `native` that has a function for its default: what the program did.
NATIVE = {"matmul": operator.matmul, "dot_method": _method, "imatmul": operator.imatmul}
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
                _leave(function)
            else:
                substitute(function, skip_signature_check=True)(_traced(native))


def _native_of(function: FunctionType) -> Callable[..., Any] | None:
    """What a call of the function is in a graph, unless it says so itself; None: it is none."""
    function = getattr(function, "__wrapped__", function)  # what `trimmed` has been given
    defaults = function.__kwdefaults__ or {}
    if function.__name__.startswith("_") or "site" not in defaults:
        return None
    if function.__name__ in NATIVE:
        return NATIVE[function.__name__]
    code = function.__code__
    if "native" not in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        return None
    return defaults.get("native") or operator.matmul


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


def _leave(function: FunctionType) -> None:
    """Let Dynamo leave a function, and all that it calls, as it is."""
    try:
        dynamo: Any = import_module("torch._C._dynamo.eval_frame")
        skip = dynamo._FrameExecStrategy(dynamo._FrameAction.SKIP, dynamo._FrameAction.SKIP)
        set_strategy = dynamo.set_code_exec_strategy
    except (AttributeError, ImportError):
        return
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    set_strategy(function.__code__, skip)
