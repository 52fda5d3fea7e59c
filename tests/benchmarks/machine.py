"""The machine that a benchmark ran on, the folder of results, and tables as text."""

import json
import platform
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from mixpert_py import __version__, files
from mixpert_py.errors import DeviceError
from mixpert_py.runtime import processor

RESULTS = Path(__file__).parent / "results"

Record = dict[str, Any]


def machine() -> Record:
    """The facts about the host on which a time depends."""
    return {
        "cpu": processor.name(),
        "cores": processor.cores(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "mixpert-py": __version__,
        "date": datetime.now(UTC).date().isoformat(),
    }


def gpu() -> ModuleType:
    """The module `cupy`. Raises DeviceError where there is no GPU that the schemes run on."""
    from mixpert_py.runtime.gpu.device import Absent, find

    found = find()
    if isinstance(found, Absent):
        raise DeviceError(f"this benchmark runs on a GPU: {found.sentence}")
    return import_module("cupy")


def device(cupy: ModuleType) -> Record:
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


def facts_of_gpu() -> Record:
    """The facts about the host and its GPU. Raises DeviceError where there is none."""
    return {**machine(), **device(gpu())}


def text(facts: Record, *, versions: bool = False) -> str:
    """A sentence that names the machine of a result, and its date; with a GPU's libraries, too, if
    `versions`.
    """
    if "device" not in facts:
        host = f"{facts['cpu']}, {facts['cores']} cores"
        return f"A CPU ({host}), NumPy {facts['numpy']}, {facts['date']}."
    if not versions:
        return f"One {facts['device']}, {facts['date']}."
    return (
        f"One {facts['device']}, CUDA {facts['cuda']} (driver {facts['driver']}), "
        f"cuBLAS {facts['cublas']}, CuPy {facts['cupy']}, {facts['date']}."
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def save(name: str, result: Record) -> None:
    """Write a result to RESULTS/NAME.json in one step, floats rounded to five digits."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(rounded(result), indent=1, ensure_ascii=False)
    files.replace(RESULTS / f"{name}.json", f"{text}\n".encode())


def finish(name: str, result: Record, kept: bool, markdown: Callable[[Record], str]) -> None:
    """Keep a result for the pages where that is asked for, and print its tables."""
    if kept:
        save(name, result)
    click.echo(markdown(result))


def load(name: str) -> Record | None:
    """A saved result; None where there is none."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return None
    found: Record = json.loads(path.read_text("utf-8"))
    return found


def rounded(value: object) -> Any:
    """A result with its floats rounded to the five digits that a measurement has."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list | tuple) else value


save_option = click.option("--save", is_flag=True, help="Keep the result for the pages.")
