"""A machine without a GPU, and the states of affairs under which small products are native."""

from collections.abc import Callable

import pytest

from mixpert_py.runtime.cuda import device
from mixpert_py.runtime.in_force import InForce
from mixpert_py.runtime.tracing.trace import Reason, Trace

SITE = "m:f/product~aa#0"
FORCES: dict[str, Callable[[], InForce]] = {
    "nothing": InForce,
    "trace": lambda: InForce(trace=Trace(levels=["float32"], keep=[SITE])),
    "native": lambda: InForce(scheme="native"),
    "too small": lambda: InForce(scheme="float32", trace=Trace()),
    "no tensor core": lambda: InForce(scheme="int8x6"),
}


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undone by `monkeypatch.undo()` where a test needs the GPU that is there."""
    absent = device.Absent(Reason.NO_TENSOR_CORE, "there is no GPU")
    monkeypatch.setattr(device, "may_be_here", lambda: False)
    monkeypatch.setattr(device, "find", lambda number=None: absent)
