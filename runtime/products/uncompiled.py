"""Calls of rewritten code in functions that `torch.compile` compiles: they are made as they are.

Dynamo, which compiles a function's bytecode, would go on into the runtime, and fail there. It makes
what comes before and after such a call a graph each, as of any call that it cannot compile.
"""

from importlib import import_module
from types import FunctionType
from typing import Any

# The modules whose functions rewritten code calls.
MODULES = (
    "api",
    "products.blas",
    "products.einsum",
    "products.fused",
    "products.in_place",
    "products.inner",
    "products.multi_dot",
    "products.tensordot",
    "products.tensors",
    "products.vectors",
    "products.xp",
)


_is_told = False


def leave_uncompiled() -> None:
    """Tell Dynamo, once, to leave these calls, and all that they call, as they are.

    PyTorch must have been imported. Does nothing for a version whose Dynamo cannot be told.
    """
    global _is_told
    if _is_told:
        return
    try:
        dynamo: Any = import_module("torch._C._dynamo.eval_frame")
        skip = dynamo._FrameExecStrategy(dynamo._FrameAction.SKIP, dynamo._FrameAction.SKIP)
        set_strategy = dynamo.set_code_exec_strategy
    except (AttributeError, ImportError):
        return
    _is_told = True
    for name in MODULES:
        module = import_module(f"mixpert_py.runtime.{name}")
        functions: list[Any] = [x for x in vars(module).values() if isinstance(x, FunctionType)]
        for function in functions:
            if function.__module__ == module.__name__:
                function._torchdynamo_disable = True
                set_strategy(function.__code__, skip)
