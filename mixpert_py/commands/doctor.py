"""The command that says what was found on this machine, and what would run: `mixpert doctor`."""

import json
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import click

from mixpert_py import __version__
from mixpert_py.errors import DeviceError

if TYPE_CHECKING:
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

        from mixpert_py.commands.tables import console

        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for what, found in findings.items():
            table.add_row(what, found, style="bold" if found == MISSING else None)
        console().print(table)
    return 2 if MISSING in findings.values() else 0


def examine() -> dict[str, str]:
    """Return what was found on this machine, by subject: MISSING for a package that is required.

    Imports NumPy, and beside a GPU CuPy; runs nothing of the user's.
    """
    from mixpert_py import config
    from mixpert_py.runtime.gpu.device import find

    gpu = find()
    return {
        "mixpert-py": __version__,
        "python": f"{platform.python_version()} on {platform.system()}",
        **{name: _version(name) or MISSING for name in PACKAGES},
        "BLAS": _blas(),
        "BLAS threads": f"{config.blas_threads()} in tuning runs",
        "GPU": _gpu(gpu),
        "device model": _device_model(gpu),
        **{name: _first_version(several) for name, several in GPU_PACKAGES.items()},
        **_what_runs(gpu),
    }


EDGES = range(384, 8192, 128)  # sizes at which defaults are compared with native products


def _what_runs(gpu: "Device | Absent") -> dict[str, str]:
    from mixpert_py.runtime.gpu.device import Absent
    from mixpert_py.runtime.worth import figures

    if isinstance(gpu, Absent):
        single, wide = "native", "native; float32 where a plan says so and it is large enough"
        emulated = "the reference backend in NumPy, with --backend reference"
    else:
        faster = figures(gpu.name).faster

        def default(scheme: str, wide: bool) -> str:
            """Say what runs without a plan, for products of which this is the default scheme."""
            for n in EDGES:
                if faster(scheme, (n, n), (n, n), wide, by_default=True):
                    return (
                        f"native; {scheme} on the GPU from about {n} × {n} × {n} on, "
                        "NumPy arrays where moving them pays"
                    )
            return f"native, which is faster than {scheme} on this GPU"

        single, wide = default("faithful", False), default("crt", True)
        emulated = f"{gpu.kernels} kernels on the GPU; NumPy arrays where moving them pays"
    return {"float64 products": wide, "float32 products": single, "emulated schemes": emulated}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _first_version(distributions: tuple[str, ...]) -> str:
    """The version of the first distribution that is installed."""
    installed = (f"{_version(name)} ({name})" for name in distributions if _version(name))
    return next(installed, FOR_A_GPU)


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
    """The device model in use, and its origin."""
    from mixpert_py.runtime import own_files
    from mixpert_py.runtime.gpu.device import Absent
    from mixpert_py.runtime.model import device_model

    if isinstance(gpu, Absent):
        return f"none in use; known are {', '.join(device_model.names())}"
    try:
        model = device_model.find(gpu.name)
    except DeviceError as error:
        nearest = device_model.slug(device_model.model_of(gpu.name).device)
        return f"{nearest} stands in: {error} (`mixpert probe` makes one)"
    path = device_model.path_of(gpu.name)
    place = path if path in own_files.files(path.parent) else "shipped"
    return f"{place}, {model.origin}, of {model.date}"
