"""Where a benchmark ran, and its results on disk."""

import json
from pathlib import Path
from typing import Any

from mixpert_py.errors import DeviceError
from mixpert_py.machine import machine as machine

RESULTS = Path(__file__).parent / "results"


def gpu() -> Any:
    """CuPy, where it finds a GPU that the schemes run on. Raises DeviceError where it does not."""
    from mixpert_py.runtime.cuda.device import Absent, find

    found = find()
    if isinstance(found, Absent):
        raise DeviceError(f"this benchmark runs on a GPU: {found.sentence}")
    import cupy

    return cupy


def device(cupy: Any) -> dict[str, Any]:
    """The facts about the current GPU that a time depends on, beside those of `machine`."""
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
    """The result with the machine it was measured on; kept beside the code if asked."""
    result = {"machine": {**machine(), **(facts or {})}, **result}
    if keep:
        text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
        (RESULTS / f"{name}.json").write_text(text, "utf-8")
    return result
