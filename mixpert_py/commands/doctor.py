"""The command that says what was found on this machine, and what would run: `mixpert doctor`."""

import datetime
import json
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import click

from mixpert_py import __version__
from mixpert_py.errors import DeviceError

if TYPE_CHECKING:
    from mixpert_py.runtime.gpu.device import Absent, Device

PACKAGES = ("numpy", "libcst", "click", "rich", "msgspec", "tomlkit", "networkx")
GPU = "products on a GPU (pip install '.[cuda13]' in a checkout)"
GPU_PACKAGES = {
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "numba-cuda": ("numba-cuda",),
}
OPTIONAL = {"scikit-learn": "the samples on real data (pip install '.[samples]' in a checkout)"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print what was found as a JSON list.")
def doctor(as_json: bool) -> int:
    """Say what was found, what would run, and what is missing."""
    findings = examine()
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _print(findings)
    return 0 if all(finding.fine for finding in findings) else 2


def _print(findings: "list[Finding]") -> None:
    from rich.table import Table
    from rich.text import Text

    from mixpert_py.commands.tables import console

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for finding in findings:
        mark = Text("") if finding.fine else Text("missing", style="bold")
        table.add_row(finding.what, Text(finding.found), mark)
    console().print(table)


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the examination: its subject, what was found, and whether that is fine."""

    what: str
    found: str
    fine: bool = True


def examine() -> list[Finding]:
    """Look at this machine. Imports NumPy, and CuPy where it is; runs nothing of the user's."""
    from mixpert_py import config
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


EDGES = range(384, 8192, 128)  # sizes at which defaults are compared with native products


def _what_runs(gpu: "Device | Absent") -> list[Finding]:
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
                if faster(scheme, (n, n), (n, n), wide, 0, by_default=True):
                    return (
                        f"native; {scheme} on the GPU from about {n} × {n} × {n} on, "
                        "NumPy arrays where moving them pays"
                    )
            return f"native, which is faster than {scheme} on this GPU"

        single, wide = default("faithful", False), default("crt", True)
        emulated = f"{gpu.kernels} kernels on the GPU; NumPy arrays where moving them pays"
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
    """The device model in use, its origin and its age."""
    from mixpert_py.runtime import own_files
    from mixpert_py.runtime.gpu.device import Absent
    from mixpert_py.runtime.model import known_devices

    if isinstance(gpu, Absent):
        return f"none in use; known are {', '.join(known_devices.names())}"
    try:
        model = known_devices.find(gpu.name)
    except DeviceError as error:
        nearest = known_devices.slug(known_devices.model_of(gpu.name).device)
        return f"{nearest} stands in: {error} (`mixpert probe` makes one)"
    path = known_devices.path_of(gpu.name)
    days = (datetime.date.today() - model.date).days
    age = "of today" if days == 0 else f"{days} day{'s' * (days != 1)} old"
    if path in own_files.files(path.parent):
        return f"{path}, {model.origin}, {age}"
    left = f"; {path} is left, others could have written it" if path.exists() else ""
    return f"shipped, {model.origin}, {age}{left}"
