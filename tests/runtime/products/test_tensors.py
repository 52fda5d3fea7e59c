"""`torch_matmul` on a PyTorch that is not there: who multiplies, and what comes back."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime import signatures
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.products.tensors import torch_matmul
from mixpert_py.runtime.tracing.trace import Trace
from tests.runtime.gpu.test_foreign import Tensor, tensor
from tests.runtime.gpu.test_foreign import torch as torch
from tests.runtime.operands import outcome

SITE = "m:f/mm~aa#0"


def product(name: str) -> Callable[..., Any]:
    """torch.matmul, mm or bmm."""

    def native(a: Any, b: Any) -> Any:
        if not isinstance(a, Tensor) or not isinstance(b, Tensor):
            raise TypeError(f"{name}(): argument must be Tensor, not {type(b).__name__}")
        if name != "matmul" and (a.ndim, b.ndim) != (2 + (name == "bmm"),) * 2:
            raise RuntimeError(f"{name}(): wrong dimensions")
        if name == "bmm" and a.shape[0] != b.shape[0]:
            raise RuntimeError("bmm(): wrong batch")
        return a @ b

    native.__name__ = name
    return native


@pytest.mark.parametrize("scheme", [None, "int8x8"])
@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("mm", [(3, 9, 20), (20, 8)]),
        ("mm", [(20,), (20, 8)]),
        ("bmm", [(9, 20), (20, 8)]),
        ("bmm", [(3, 9, 20), (1, 20, 8)]),
        ("matmul", [(9, 20), (9, 20)]),
        ("mm", [(9, 20), (9, 20)]),
    ],
)
@pytest.mark.usefixtures("torch")
def test_what_pytorch_refuses_is_refused(name: str, shapes: Any, scheme: str | None) -> None:
    native = product(name)
    operands = [tensor(*shape) for shape in shapes]
    wanted, _ = outcome(native, *operands)
    with use(Context(scheme=scheme)):
        result, _ = outcome(partial(torch_matmul, native=native, site=SITE), *operands)
    assert isinstance(wanted, tuple)
    assert result == wanted


class Asked(Tensor):
    """A tensor that counts what it is asked where a mode of PyTorch's would see that."""

    is_below = False
    seen: list[str]

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("__") and not Asked.is_below:
            Asked.seen.append(name)
        return super().__getattribute__(name)

    def __matmul__(self, other: Tensor) -> Tensor:
        assert not Asked.is_below
        return Tensor(np.ones((2, 2)))


class Below:
    def __enter__(self) -> None:
        Asked.is_below = True

    def __exit__(self, *_: object) -> None:
        Asked.is_below = False


@pytest.mark.parametrize("is_cuda", [True, False])
@pytest.mark.parametrize("trace", [None, Trace()])
def test_a_mode_of_the_program_sees_its_own_calls_alone(
    torch: Any, monkeypatch: pytest.MonkeyPatch, is_cuda: bool, trace: Trace | None
) -> None:
    torch._C = SimpleNamespace(DisableTorchFunction=Below, _len_torch_function_stack=lambda: 1)
    torch.Tensor = Asked
    monkeypatch.setattr(signatures, "count_modes", int)
    x = Asked(np.ones((2, 2)))
    x.is_cuda = is_cuda
    with use(Context(trace=trace)):
        matmul(x, x, site=SITE)
        Asked.seen = []
        for _ in range(3):
            matmul(x, x, site=SITE)
            torch_matmul(x, x, native=lambda a, b: a @ b, site=SITE)
    assert Asked.seen == []
