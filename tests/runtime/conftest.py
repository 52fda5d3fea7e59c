"""What tests of a GPU that is not there share."""

from typing import Any

import pytest

from tests.runtime.gpu.fake import FakeGpu, ndarray


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """Such a GPU, in CuPy's place."""
    fake = FakeGpu()
    fake.install(monkeypatch)
    return fake


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Shapes of what goes to the device, each time."""
    shapes: list[tuple[int, ...]] = []
    as_it_is = ndarray.set

    def noted(target: Any, x: Any, **given: Any) -> None:
        shapes.append(x.shape)
        as_it_is(target, x, **given)

    monkeypatch.setattr(ndarray, "set", noted)
    return shapes
