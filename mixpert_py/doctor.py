"""An examination of this machine: its packages, its GPU, and what would run where."""

import datetime
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from mixpert_py import __version__, config
from mixpert_py.errors import DeviceError

if TYPE_CHECKING:
    from mixpert_py.runtime.gpu.device import Absent, Device

PACKAGES = ("numpy", "libcst", "click", "rich", "msgspec", "tomlkit", "networkx")
GPU = "products on a GPU (pip install 'mixpert-py[cuda13]')"
GPU_PACKAGES = {
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "numba-cuda": ("numba-cuda",),
}
OPTIONAL = {"scikit-learn": "the samples on real data (pip install 'mixpert-py[samples]')"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the examination: its subject, what was found, and whether that is fine."""

    what: str
    found: str
    fine: bool = True


def examine() -> list[Finding]:
    """Look at this machine. Imports NumPy, and CuPy where it is; runs nothing of the user's."""
    from mixpert_py.runtime.gpu.device import find

    findings = [
        Finding("mixpert-py", __version__),
        Finding("python", f"{platform.python_version()} on {platform.system()}"),
    ]
    for name in PACKAGES:
        found = _version(name)
        findings.append(Finding(name, found or "missing", found is not None))
    for name, purpose in OPTIONAL.items():
        findings.append(Finding(name, _version(name) or f"not installed; only for {purpose}"))
    findings.append(Finding("BLAS", _blas()))
    findings.append(Finding("BLAS threads", f"{config.blas_threads()} in tuning runs"))
    gpu = find()
    findings.append(Finding("GPU", _gpu(gpu)))
    findings.append(Finding("device model", _device_model(gpu)))
    for name, packages in GPU_PACKAGES.items():
        found = next((f"{_version(p)} ({p})" for p in packages if _version(p)), None)
        findings.append(Finding(name, found or f"not installed; only for {GPU}"))
    return [*findings, *_what_runs(gpu)]


EDGES = range(128, 8192, 128)  # sizes at which `faithful` is compared with native


def _what_runs(gpu: "Device | Absent") -> list[Finding]:
    from mixpert_py.runtime.gpu.break_even import figures
    from mixpert_py.runtime.gpu.device import Absent
    from mixpert_py.runtime.kernels import HOPPER

    if isinstance(gpu, Absent):
        single = "native"
        emulated = "the reference backend in NumPy, with --backend reference"
    else:
        faster = figures(gpu.name).faster
        edge = next((n for n in EDGES if faster("faithful", (n, n), (n, n), False, 0)), None)
        single = (
            f"native; faithful on the GPU from about {edge} × {edge} × {edge} on, "
            "NumPy arrays where moving them pays"
            if edge
            else "native, which is faster than faithful on this GPU"
        )
        emulated = f"{gpu.kernels} kernels on the GPU; NumPy arrays where moving them pays"
    wide = "native; float32 where a plan says so and the product is large enough"
    if not isinstance(gpu, Absent) and gpu.capability == HOPPER:
        wide += "; crt, as accurate as FP64, on the GPU where it is asked for"
    return [
        Finding("float64 products", wide),
        Finding("float32 products", single),
        Finding("emulated schemes", emulated),
    ]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _blas() -> str:
    import numpy as np

    configuration = np.show_config(mode="dicts")
    if not isinstance(configuration, dict):
        return "unknown"
    blas = configuration.get("Build Dependencies", {}).get("blas", {})
    return " ".join(str(blas.get(key, "")) for key in ("name", "version")).strip() or "unknown"


def _gpu(gpu: "Device | Absent") -> str:
    from mixpert_py.runtime.gpu.device import Absent

    if isinstance(gpu, Absent):
        return f"none that can be used: {gpu.sentence}"
    return f"{gpu.name}, compute capability {gpu.capability / 10}, {gpu.kernels} kernels"


def _device_model(gpu: "Device | Absent") -> str:
    """Which one is in use, from where, and how old it is."""
    from mixpert_py.runtime import own_files
    from mixpert_py.runtime.gpu.device import Absent
    from mixpert_py.runtime.model import STANDS_IN, known_devices

    if isinstance(gpu, Absent):
        return f"none in use; known are {', '.join(known_devices.names())}"
    try:
        model = known_devices.find(gpu.name)
    except DeviceError as error:
        return f"{STANDS_IN} stands in: {error} (`mixpert probe` makes one)"
    path = known_devices.path_of(gpu.name)
    days = (datetime.date.today() - model.date).days
    age = "of today" if days == 0 else f"{days} day{'s' * (days != 1)} old"
    if path in own_files.files(path.parent):
        return f"{path}, {model.origin}, {age}"
    left = f"; {path} is left, others could have written it" if path.exists() else ""
    return f"shipped, {model.origin}, {age}{left}"
