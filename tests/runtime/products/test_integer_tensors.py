"""Products of integer tensors on a CPU: PyTorch's own bits, types, strides and errors."""

from collections.abc import Callable
from typing import Any

import pytest

from mixpert_py.runtime import signatures, worth
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.products.tensors import torch_call, torch_matmul
from mixpert_py.runtime.tracing.trace import Trace

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")

TYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FREE = ("EXACT_START", "EXACT_MATRIX", "EXACT_CAST", "EXACT_RESULT", "READ_IN_VAIN")


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Floating point is taken for the fastest at every size."""
    for name in FREE:
        monkeypatch.setattr(worth, name, 0.0)
    for name in ("MIN_INTEGERS", "MIN_EDGE", "MIN_EDGE_OF_STACK", "SMALL_BYTES"):
        monkeypatch.setattr(worth, name, 1)
    monkeypatch.setattr(worth, "TENSOR_LOOP", 1.0)


def integers(dtype: Any, *shape: int, bits: int) -> Any:
    """Numbers below 2^bits and their negatives, modulo what the type holds."""
    return torch.randint(-(1 << bits), 1 << bits, shape).to(dtype)


def ran(product: Callable[[], Any]) -> tuple[Any, set[str]]:
    """The result of a call, and the schemes that made its products."""
    trace = Trace()
    with use(Context(trace=trace)):
        result = product()
    return result, {scheme for record in trace.sites.values() for scheme in record.schemes}


SPELLINGS: dict[str, Callable[[Any, Any, Any, Callable[..., Any]], Any]] = {
    "@": lambda a, b, s, f: f(None, a, b),
    "mm": lambda a, b, s, f: f(torch.mm, a.T, b),
    "bmm": lambda a, b, s, f: f(torch.bmm, s, s),
    "matmul": lambda a, b, s, f: f(torch.matmul, s, a),
    "matmul of a matrix and a stack": lambda a, b, s, f: f(torch.matmul, a, s),
    "a stack without memory of its own": lambda a, b, s, f: f(
        torch.matmul, s[:1].expand(4, 20, 20), a
    ),
    "steps": lambda a, b, s, f: f(torch.mm, a[::2, ::3], b[::3]),
    "a.mm(b)": lambda a, b, s, f: f(a.mm, b),
    "inner": lambda a, b, s, f: f(torch.inner, a, b),
    "linear": lambda a, b, s, f: f(torch.nn.functional.linear, a, b),
    "tensordot": lambda a, b, s, f: f(torch.tensordot, s, s, dims=([1, 0], [1, 0])),
    "multi_dot": lambda a, b, s, f: f(torch.linalg.multi_dot, [a, b, a]),
    "einsum": lambda a, b, s, f: f(torch.einsum, "ij,jk->ki", a, b),
    "einsum of three": lambda a, b, s, f: f(torch.einsum, "ij,jk,kl->il", a, b, a),
    "einsum of stacks": lambda a, b, s, f: f(torch.einsum, "bij,bjk->bik", s, s),
}


def ours(native: Any, *operands: Any, **options: Any) -> Any:
    if native is None:
        return matmul(*operands, site="s")
    if native in (torch.mm, torch.bmm, torch.matmul):
        return torch_matmul(*operands, native=native, site="s")
    return torch_call(*operands, native=native, site="s", **options)


def torchs(native: Any, *operands: Any, **options: Any) -> Any:
    return torch.matmul(*operands) if native is None else native(*operands, **options)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("bits", [2, 20, 62])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("call", SPELLINGS.values(), ids=SPELLINGS)
def test_every_spelling(call: Any, dtype: Any, bits: int) -> None:
    a, b = (integers(dtype, 20, 20, bits=bits) for _ in range(2))
    stack = integers(dtype, 3, 20, 20, bits=bits)
    wanted = call(a, b, stack, torchs)
    result, schemes = ran(lambda: call(a, b, stack, ours))
    assert schemes == {"exact"}
    assert (result.dtype, result.stride()) == (wanted.dtype, wanted.stride())
    assert torch.equal(result, wanted)
    result.resize_(1000)  # the memory is PyTorch's own


class Own(torch.Tensor):  # type: ignore[misc, name-defined]
    """A subclass, which may multiply in its own way."""


A = integers(torch.int64, 20, 20, bits=40)
NATIVE: dict[str, Callable[[Any], Any]] = {
    "a vector": lambda f: f(A, A[0]),
    "no rows": lambda f: f(A[:0], A),
    "types": lambda f: f(A, A.int()),
    "booleans": lambda f: f(A > 0, A > 0),
    "wide unsigned": lambda f: f(A.to(torch.uint32), A.to(torch.uint32)),
    "shapes": lambda f: f(A, A[:5]),
    "meta": lambda f: f(A.to("meta"), A.to("meta")).shape,
    "sparse": lambda f: f(A.to_sparse(), A),
    "vmap": lambda f: torch.vmap(lambda x: f(x, A))(torch.stack([A, A])),
    "a subclass": lambda f: f(A.as_subclass(Own), A),
}


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("call", NATIVE.values(), ids=NATIVE)
def test_others_are_pytorchs(call: Any) -> None:
    def outcome(f: Any) -> Any:
        try:
            return call(f)
        except (RuntimeError, NotImplementedError) as error:
            return type(error), str(error)

    wanted = outcome(torch.matmul)
    result, schemes = ran(lambda: outcome(lambda *x: matmul(*x, site="s")))
    assert schemes <= {"native"}
    assert type(result) is type(wanted)
    assert torch.equal(result, wanted) if isinstance(result, torch.Tensor) else result == wanted


@pytest.mark.usefixtures("always")
def test_a_mode_of_the_program_sees_its_products() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, operator: Any, types: Any, given: Any, named: Any) -> Any:
            seen.append(str(operator))
            return operator(*given, **(named or {}))

    with Mode():
        for native in (None, torch.mm, A.mm):
            operands = (A,) if native == A.mm else (A, A)
            ours(native, *operands)
    assert seen == ["aten.mm.default"] * 3


def test_products_that_pytorch_makes_sooner_are_not_looked_at_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worth, "SMALL_ELEMENTS", 1)
    monkeypatch.setattr(worth, "EXACT_START", 1.0)
    x = integers(torch.int64, 90, 90, bits=40)
    with use(Context()) as context:
        assert torch.equal(matmul(A, A, site="s"), A @ A)
        assert torch.equal(matmul(x, x, site="s"), x @ x)
        small, large = context.known.values()
    assert small is signatures.NATIVE
    answers = [large(x, x) for _ in range(worth.RESTED + 1)]
    assert answers == [signatures.NATIVE] * worth.RESTED + [None]
