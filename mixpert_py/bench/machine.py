"""The facts about the machine that a benchmark ran on, and the folder of kept results."""

import json
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from mixpert_py.errors import DeviceError
from mixpert_py.machine import machine as machine

RESULTS = Path(__file__).parent / "results"


def gpu() -> ModuleType:
    """The module `cupy`. Raises DeviceError where there is no GPU that the schemes run on."""
    from mixpert_py.runtime.gpu.device import Absent, find

    found = find()
    if isinstance(found, Absent):
        raise DeviceError(f"this benchmark runs on a GPU: {found.sentence}")
    return import_module("cupy")


def device(cupy: ModuleType) -> dict[str, Any]:
    """The facts about the current GPU that a time depends on; `machine` has those of the host."""
    from cupy_backends.cuda.libs import cublas

    runtime = cupy.cuda.runtime
    library = cublas.getVersion(cupy.cuda.device.get_cublas_handle())
    properties = runtime.getDeviceProperties(cupy.cuda.Device().id)
    return {
        "device": properties["name"].decode(),
        "multiprocessors": properties["multiProcessorCount"],
        "driver": _dotted(runtime.driverGetVersion()),
        "cuda": _dotted(runtime.runtimeGetVersion()),
        "cublas": f"{library // 10000}.{library % 10000 // 100}.{library % 100}",
        "cupy": cupy.__version__,
    }


def _dotted(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def finish(
    name: str, result: dict[str, Any], keep: bool, facts: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The result with the facts about this machine; written to RESULTS/NAME.json if `keep`."""
    result = {"machine": {**machine(), **(facts or {})}, **result}
    if keep:
        text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
        (RESULTS / f"{name}.json").write_text(text, "utf-8")
    return result
