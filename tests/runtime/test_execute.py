"""The way of a product: how many Python frames lie between the call and the launch."""

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime import worth
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.gpu import multiply as gpu_backend
from tests.runtime.gpu.fake import FakeGpu, ndarray, pays_from

MOST = 9  # Python frames from `matmul` to the call of the driver


def deepest(product: Callable[[], Any]) -> list[str]:
    """The functions of the deepest chain of calls that a product makes, `product` left out."""
    chain: list[str] = []
    longest: list[str] = []

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            chain.append(frame.f_code.co_qualname)
            if len(chain) > len(longest):
                longest[:] = chain
        elif event == "return" and chain:
            chain.pop()

    sys.setprofile(watch)
    try:
        product()
    finally:
        sys.setprofile(None)
    return longest[1:]


def test_few_frames_lead_to_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU that is not there: down to `pack`, which is two frames above the driver."""
    gpu = FakeGpu()
    gpu.install(monkeypatch)
    monkeypatch.setattr(worth, "figures", lambda name: pays_from(1))
    reached: list[str] = []

    def pack(*given: Any, **how: Any) -> Any:
        frame: FrameType | None = sys._getframe(1)
        reached.clear()
        while frame is not None and frame.f_code.co_filename != __file__:
            reached.insert(0, frame.f_code.co_name)
            frame = frame.f_back
        return gpu.pack(*given, **how)

    kernels = replace(gpu_backend.cuda_kernels(), pack=pack)
    monkeypatch.setattr(gpu_backend, "cuda_kernels", lambda: kernels)
    a, b = (ndarray(np.ones((64, 64), np.float32)) for _ in range(2))
    for _ in range(2):
        matmul(a, b)
    way = ["matmul", "carry_out", "execute", "multiply", "multiply", "_pack_multiply_repair"]
    assert reached == way
    assert len(reached) + 3 <= MOST  # pack, the launch's record, the kernel


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1024, 2048])
def test_few_frames_lead_to_the_driver(size: int) -> None:
    import cupy

    a, b = (cupy.random.default_rng(i).random((size, size), "float32") for i in range(2))
    matmul(a, b)
    found = deepest(lambda: matmul(a, b))
    assert len(found) <= MOST, found
