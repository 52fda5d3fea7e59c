"""The backends of the contract: NumPy's emulation, the stand-in for a GPU, and a real GPU."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.runtime.gpu.fake import FakeGpu


def _unchanged(x: Any) -> Any:
    return x


@dataclass(frozen=True, slots=True)
class Backend:
    """name: as the public functions take it. put: moves a NumPy array to where products of this
    backend take it, with its strides; get: moves a result back.
    """

    name: str
    put: Callable[[Any], Any] = _unchanged
    get: Callable[[Any], Any] = _unchanged

    @property
    def is_on_host(self) -> bool:
        return self.put is _unchanged


@pytest.fixture(
    params=["reference", "fake", "fake, moved", pytest.param("cuda", marks=pytest.mark.gpu)]
)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Backend:
    """Where the products of a row are made."""
    if request.param == "reference":
        return Backend("reference")
    if request.param == "cuda":
        import cupy

        return Backend("cuda", cupy.asarray, cupy.asnumpy)
    cupy = FakeGpu().install(monkeypatch)
    if request.param == "fake, moved":
        return Backend("cuda")
    return Backend("cuda", cupy.asarray, lambda x: x.get() if hasattr(x, "get") else x)
