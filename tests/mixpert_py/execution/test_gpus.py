"""Which ladder a program gets, and what a GPU would take of it."""

import pytest

from mixpert_py.errors import DeviceError
from mixpert_py.execution import executor
from mixpert_py.execution.worker import Result, SiteResult
from mixpert_py.runtime.gpu.device import Device
from mixpert_py.runtime.schemes import ladder
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from mixpert_py.tuning.prepare import require_gpu_for_ladder, rungs_for

GPU = Device(0, "NVIDIA H200", 90)


def result(edge: int, dtype: str = "float32", on_gpu: bool = False) -> Result:
    shapes = [(edge, edge, edge, 3), (7, 0, 7, 1), *((edge, edge, n, 1) for n in range(1, 9))]
    site = SiteResult(12, 1.0, shapes, {"native": 12}, {}, {dtype: 12}, {})
    return Result(1.0, {"s:f/matmul~0a#0": site}, {}, [], on_gpu=on_gpu)


@pytest.mark.parametrize(
    ("seen", "backend", "takes"),
    [
        (result(8192), None, True),
        (result(64), None, False),
        (result(8192, "int64"), None, False),
        (result(64), "cuda", True),
        (result(64, on_gpu=True), None, True),
    ],
)
def test_what_a_gpu_takes(seen: Result, backend: str | None, takes: bool) -> None:
    assert executor.would_run(seen, GPU, backend) is takes


def options(backend: str | None = None, name: str = "auto") -> TuningOptions:
    return TuningOptions(Limits(Limit(1.0)), backend=backend, ladder=name)


@pytest.mark.parametrize(
    ("asked", "on_gpu", "name"),
    [
        (options(), False, "cpu"),
        (options(), True, "int8"),
        (options("reference"), False, "int8"),
        (options("reference", "mixpert"), False, "mixpert"),
        (options(None, "cpu"), True, "cpu"),
        (options("cuda", "fp16"), True, "fp16"),
    ],
)
def test_the_ladder(asked: TuningOptions, on_gpu: bool, name: str) -> None:
    assert rungs_for(asked, on_gpu) == ladder(name)


def test_a_ladder_that_nothing_here_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "usable_gpu", lambda backend: None)
    for name in ("int8", "crt", "mixpert", "fp16"):
        with pytest.raises(DeviceError, match=f"--ladder {name}: there is no GPU"):
            require_gpu_for_ladder(options(name=name))
        require_gpu_for_ladder(options("reference", name))
    require_gpu_for_ladder(options(name="cpu"))
    require_gpu_for_ladder(options())
