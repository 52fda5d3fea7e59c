"""Kernel sources as they are compiled, the order of launches, and compilations that fail."""

import importlib
import re
from types import SimpleNamespace
from unittest import mock

import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.runtime.kernels.compile import source_text
from mixpert_py.runtime.kernels.numba_ptx import compiled


@pytest.mark.parametrize("file", ["gemm_sm80.cu", "gemm_sm90.cu"])
def test_definitions_come_first_and_nothing_is_included(file: str) -> None:
    text = source_text(file, (("ELEMENT", 1), ("TERMS", "{0,0}")))
    assert text.startswith("#define ELEMENT 1\n#define TERMS {0,0}\n")
    assert "#include" not in text
    assert text.count("struct Problem {") == 1
    assert text.index("struct Problem {") < text.index("__global__")


def factory() -> tuple[object, tuple[object, ...]]:
    from numba.cuda import types

    def kernel(x):  # type: ignore[no-untyped-def]
        return x.nothing_of_the_kind

    return kernel, (types.int64,)


def test_what_numba_cannot_compile_is_one_clear_line() -> None:
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    with pytest.raises(DeviceError, match=r"^kernel 'factory': .*$"):
        compiled(__name__, "factory", (), "90")


def test_what_needs_itself_while_it_is_made_does_not_wait_for_itself() -> None:
    """A signal's handler, or a finalizer, may want a kernel that is being compiled."""
    from mixpert_py.runtime.kernels.compile import once

    depth = [0]

    @once
    def make(key: int) -> int:
        depth[0] += 1
        return make(key) if depth[0] < 3 else depth[0]

    assert make(1) == 3
    assert make(1) == 3


def waiting() -> tuple[object, tuple[object, ...]]:
    from numba import cuda
    from numba.cuda import types

    from mixpert_py.runtime.kernels.intrinsics import launched

    def body(x, y):  # type: ignore[no-untyped-def]
        if cuda.threadIdx.x > 3:
            return
        y[cuda.threadIdx.x] = x[cuda.threadIdx.x]

    pointer = types.CPointer(types.float32)
    found: tuple[object, tuple[object, ...]] = launched(body, pointer, pointer)
    return found


def test_a_kernel_waits_for_the_launch_before_it_and_looks_at_its_gate() -> None:
    """Or waits in the end, where it runs beside that launch; earlier devices know no waiting."""
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    dispatcher = importlib.import_module("numba.cuda.dispatcher")
    found = {}
    for capability in ("80", "90"):
        here = SimpleNamespace(compute_capability=tuple(map(int, capability)))
        with mock.patch.object(dispatcher, "get_current_device", return_value=here):
            found[capability] = compiled(__name__, "waiting", (), capability).decode()
    orders = r"griddepcontrol\.\w+|ld\.\w*\.?global|st\.global|ret;"
    wait, go = "griddepcontrol.wait", "griddepcontrol.launch_dependents"
    look = "ld.volatile.global"
    assert re.findall(orders, found["90"]) == [
        wait,
        go,
        look,
        "ld.global",
        "st.global",
        wait,
        "ret;",
    ]
    assert re.findall(orders, found["80"]) == [look, "ld.global", "st.global", "ret;"]
