"""What a product's first call lets other threads compile, without a GPU."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.gpu import compile_ahead as ahead
from mixpert_py.runtime.packing import rows
from mixpert_py.runtime.request import Request
from mixpert_py.runtime.schemes import emulation_of
from tests.runtime.gpu.fake import FakeGpu


class Compiled:
    """What is asked for. packed: schemes, and whether launches look at a gate; gemm: schemes of
    launches that are only prepared; repaired: bytes of a result's element. busy: whether threads
    begin nothing, and the product is interrupted; cancelled: how much was not to be begun any more.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.packed: list[tuple[str, bool]] = []
        self.gemm: list[str] = []
        self.repaired: list[int] = []
        self.busy = False
        self.cancelled = 0
        self.gpu = FakeGpu()
        cupy = self.gpu.install(monkeypatch)
        cupy.cuda.Device = Device
        monkeypatch.setattr(rows, "has_clusters", lambda device: True)
        monkeypatch.setattr(ahead, "_pool", lambda: SimpleNamespace(submit=self.submit))
        monkeypatch.setattr(ahead, "compilations", self.preparations)
        monkeypatch.setattr(ahead, "gemm", self.prepare_gemm)
        monkeypatch.setattr(ahead, "repair_kernel", lambda a, b, size: self.repaired.append(size))

    def submit(self, compile: Any) -> Any:
        if not self.busy:
            compile()
        return SimpleNamespace(cancel=self.cancel)

    def cancel(self) -> None:
        self.cancelled += 1

    def preparations(self, task: Any, gated: bool) -> list[Any]:
        assert task.layouts  # whole
        return [lambda: self.packed.append((task.scheme.name, gated))] * 2

    def prepare_gemm(self, left: Any, right: Any, scheme: Any, c: Any, prepare: bool) -> None:
        assert prepare
        self.gemm.append(scheme.name)

    def of(self, scheme: str, *shapes: tuple[int, ...], dtype: str = "float32") -> None:
        a, b = (self.gpu.asarray(np.broadcast_to(np.zeros((), dtype), x)) for x in shapes)
        out = self.gpu.empty((a.shape[-2], b.shape[-1]), dtype)
        with ahead.compiling_ahead(Request(a, b, scheme, out=out)):
            assert not self.cancelled
            if self.busy:
                raise KeyboardInterrupt


class Device(nullcontext[None]):
    """cupy.cuda.Device of the only device."""

    id = 0

    def __init__(self, number: int = 0) -> None:
        super().__init__()


def test_every_kernel_of_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = Compiled(monkeypatch)
    compiled.of("int8x6", (300, 200), (200, 100), dtype="float64")
    assert compiled.packed == [("int8x6", False)] * 2
    assert compiled.gemm == ["int8x6"]
    assert compiled.repaired == [8]


def test_a_large_product_has_those_of_the_wider_scheme_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = Compiled(monkeypatch)
    compiled.of("faithful", (2048, 2048), (2048, 2048))
    default = emulation_of("faithful")
    assert default.wider is not None
    names = default.name, default.wider.name
    assert compiled.packed == [(names[0], False)] * 2 + [(names[1], True)] * 2
    assert compiled.gemm == list(names)


def test_stacks_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = Compiled(monkeypatch)
    compiled.of("int8x6", (2, 300, 200), (200, 100))
    assert (compiled.packed, compiled.gemm, compiled.repaired) == ([], [], [])


def test_an_interrupted_product_leaves_nothing_to_be_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = Compiled(monkeypatch)
    compiled.busy = True
    with pytest.raises(KeyboardInterrupt):
        compiled.of("int8x6", (300, 200), (200, 100))
    assert compiled.cancelled == 4
