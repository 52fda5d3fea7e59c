"""The command that says what was found on this machine, and what would run: `mixpert doctor`."""

import json
import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from mixpert_py import __version__
from mixpert_py.errors import DeviceError, one_line

if TYPE_CHECKING:
    from mixpert_py.runtime.arrays import Array
    from mixpert_py.runtime.gpu.device import Absent, Device

MISSING = "missing"
PACKAGES = ("numpy", "libcst", "click", "rich", "msgspec", "tomlkit", "networkx")
# Packages for products on a GPU, by the names of their distributions.
GPU_PACKAGES = {"cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"), "numba-cuda": ("numba-cuda",)}
FOR_A_GPU = "not installed; only for products on a GPU (pip install '.[cuda13]' in a checkout)"


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print what was found as a JSON object.")
def doctor(as_json: bool) -> int:
    """Say what was found, what would run, and what is missing."""
    findings = examine()
    if as_json:
        click.echo(json.dumps(findings, indent=2))
    else:
        from rich.table import Table

        from mixpert_py.commands.tables import TableConsole

        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for what, found in findings.items():
            table.add_row(what, found, style="bold" if found == MISSING else None)
        TableConsole().print(table)
    return 2 if MISSING in findings.values() else 0


def examine() -> dict[str, str]:
    """Return what was found on this machine, by subject: MISSING for a package that is required.

    Imports NumPy, and beside a GPU CuPy and PyTorch; runs nothing of the user's.
    """
    from mixpert_py import config
    from mixpert_py.runtime.gpu.device import Absent, find

    gpu = find()
    runs = _without_gpu(gpu) if isinstance(gpu, Absent) else _on_gpu(gpu)
    return {
        "mixpert-py": __version__,
        "python": f"{platform.python_version()} on {platform.system()}",
        **{name: _version(name) or MISSING for name in PACKAGES},
        "BLAS": _blas(),
        "BLAS threads": f"{config.blas_threads()} in tuning runs",
        "GPU": runs.pop("GPU"),
        "device model": runs.pop("device model"),
        **{name: _first_version(several) for name, several in GPU_PACKAGES.items()},
        **runs,
    }


def _without_gpu(gpu: "Absent") -> dict[str, str]:
    from mixpert_py.runtime.model import device_model

    return {
        "GPU": f"none that can be used: {gpu.sentence}",
        "device model": f"none in use; known are {', '.join(device_model.names())}",
        "float64 products": "native; float32 where a plan says so and it is large enough",
        "float32 products": "native",
        "emulated schemes": "the reference backend in NumPy, with --backend reference",
    }


EDGES = range(384, 8192, 128)  # sizes at which defaults are compared with native products


def _on_gpu(gpu: "Device") -> dict[str, str]:
    """Return doctor's rows on a GPU: the default schemes, and how libraries make their products."""
    from mixpert_py.runtime.worth import LEAST_GAIN, figures

    faster = figures(gpu.name).faster

    def default(scheme: str, wide: bool) -> str:
        """Say what runs without a plan, for products of which this is the default scheme."""
        for n in EDGES:
            if faster(scheme, (n, n), (n, n), wide, least_gain=LEAST_GAIN):
                return (
                    f"native; {scheme} on the GPU from about {n} × {n} × {n} on, NumPy arrays "
                    "where moving them pays"
                )
        return f"native, which is faster than {scheme} on this GPU"

    return {
        "GPU": f"{gpu.name}, compute capability {gpu.capability / 10}, {gpu.kernels} kernels",
        "device model": _device_model(gpu),
        "float64 products": default("crt", True),
        "float32 products": default("faithful", False),
        "emulated schemes": f"{gpu.kernels} kernels on the GPU; NumPy arrays where moving them "
        "pays",
    } | {
        f"{dtype} in {library}": arithmetic_of(multiply, dtype)
        for library, multiply in (("CuPy", _by_cupy), ("PyTorch", _by_torch))
        if find_spec(library.lower().removeprefix("py")) is not None
        for dtype in ("float32", "float64")
    }


SEEN = 1024  # edge of the products that show their arithmetic; libraries emulate no small ones
SMALL = 2.0**-40  # of the largest entry of a row: fixed-point emulations of FP64 lose so small ones


def arithmetic_of(multiply: "Callable[[Array, Array], Array]", dtype: str, edge: int = SEEN) -> str:
    """Name the arithmetic of a native product, by what it makes of products of single numbers.

    Each entry is x · y + 1 · 0. Arithmetic of the type itself rounds it once: then no entry differs
    from NumPy's product of the two numbers.
    """
    import numpy as np

    x, y = (1 + np.random.default_rng(0).random((2, edge))).astype(dtype)
    error = 0.0
    for scale in (1.0, SMALL):
        a, b = np.zeros((2, edge, edge), dtype)
        a[:, 0], a[:, 1], b[0] = x * x.dtype.type(scale), 1, y
        try:
            product = np.asarray(multiply(a, b), np.float64)
        except Exception as error_of_library:  # whatever is wrong there must not end it here
            return f"unknown: {one_line(error_of_library)}"
        error = max(error, float(np.max(np.abs(product / np.outer(a[:, 0], y) - 1))))
    if error == 0:
        return {"float32": "FP32", "float64": "FP64"}[dtype]
    if dtype == "float64":
        return f"FP64 emulated by the vendor: errors of {error:.0e}"
    # A product of two numbers is off by 2⁻⁸ in BF16, by 2⁻¹⁰ or 2⁻⁹ in TF32, by 2⁻¹⁷ in BF16x3.
    bounds = ((3e-3, "BF16"), (1e-4, "TF32"), (1e-6, "BF16x3"))
    name = next((name for bound, name in bounds if error > bound), "BF16x9, or another emulation")
    return f"{name}, not FP32: errors of {error:.0e}"


def _by_cupy(a: "Array", b: "Array") -> "Array":
    import cupy

    product: Array = (cupy.asarray(a) @ cupy.asarray(b)).get()
    return product


def _by_torch(a: "Array", b: "Array") -> "Array":
    import torch

    product: Array = (torch.from_numpy(a).cuda() @ torch.from_numpy(b).cuda()).cpu().numpy()
    return product


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _first_version(distributions: tuple[str, ...]) -> str:
    installed = (f"{_version(name)} ({name})" for name in distributions if _version(name))
    return next(installed, FOR_A_GPU)


def _blas() -> str:
    import numpy as np

    configuration = np.show_config(mode="dicts")
    if not isinstance(configuration, dict):
        return "unknown"
    blas = configuration.get("Build Dependencies", {}).get("blas", {})
    return " ".join(str(blas.get(key, "")) for key in ("name", "version")).strip() or "unknown"


def _device_model(gpu: "Device") -> str:
    from mixpert_py.runtime import own_files
    from mixpert_py.runtime.model import device_model

    try:
        model = device_model.find(gpu.name)
    except DeviceError as error:
        nearest = device_model.slug(device_model.model_of(gpu.name).device)
        return f"{nearest} stands in: {error} (`mixpert probe` makes one)"
    path = device_model.path_of(gpu.name)
    place = path if path in own_files.files(path.parent) else "shipped"
    return f"{place}, {model.origin}, of {model.date}"
