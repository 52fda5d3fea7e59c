"""A machine without a GPU, and the states of affairs under which small products are native."""

from collections.abc import Callable

import pytest

from mixpert_py.runtime.context import Context
from mixpert_py.runtime.gpu import device
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.tracing.trace import Trace

SITE = "m:f/product~aa#0"


def _warned() -> Context:
    """One that has warned that there is no GPU."""
    context = Context(scheme="int8x6")
    with pytest.warns(UserWarning, match="int8x6: products run natively. No GPU can be used here"):
        context.warn_without_gpu("int8x6")
    return context


FORCES: dict[str, Callable[[], Context]] = {
    "nothing": Context,
    "trace": lambda: Context(trace=Trace(levels=["float32"], keep=[SITE])),
    "native": lambda: Context(scheme="native"),
    "too small": lambda: Context(scheme="float32", trace=Trace()),
    "no tensor core": _warned,
}


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undone by `monkeypatch.undo()` where a test needs the GPU that is there."""
    absent = device.Absent(Reason.NO_TENSOR_CORE, "there is no GPU")
    monkeypatch.setattr(device, "may_be_here", lambda: False)
    monkeypatch.setattr(device, "find", lambda number=None: absent)
