"""Calls of rewritten code in functions that `torch.compile` compiles: they are made as they are.

Dynamo, which compiles a function's bytecode, would go on into the runtime, and fail there. It makes
what comes before and after such a call a graph each, as of any call that it cannot compile.
"""

from importlib import import_module
from types import FunctionType
from typing import Any

MODULES = (
    "api",
    *(
        f"products.{name}"
        for name in ("blas", "einsum", "fused", "in_place", "inner", "multi_dot", "tensordot")
    ),
    *(f"products.{name}" for name in ("tensors", "vectors", "xp")),
)


def leave_uncompiled() -> None:
    """Have Dynamo leave these calls, and all that they call. PyTorch has been imported."""
    try:
        dynamo: Any = import_module("torch._C._dynamo.eval_frame")
        skip = dynamo._FrameExecStrategy(dynamo._FrameAction.SKIP, dynamo._FrameAction.SKIP)
        set_strategy = dynamo.set_code_exec_strategy
    except (AttributeError, ImportError):  # another version than those from 2.9 to 2.11
        return
    for name in MODULES:
        module = import_module(f"mixpert_py.runtime.{name}")
        for function in vars(module).values():
            is_own = getattr(function, "__module__", None) == module.__name__
            if is_own and isinstance(function, FunctionType):
                _mark(function)
                set_strategy(function.__code__, skip)


def _mark(function: Any) -> None:
    function._torchdynamo_disable = True
