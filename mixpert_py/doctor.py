"""What is here, what would run, and what is missing."""

import importlib.util
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from mixpert_py import __version__, config

PACKAGES = ("numpy", "libcst", "click", "rich", "msgspec", "tomlkit", "networkx")
OPTIONAL = {"scikit-learn": "the samples on real data (pip install 'mixpert-py[samples]')"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the examination: what, what was found, whether that is as it should be."""

    what: str
    found: str
    fine: bool = True


def examine() -> list[Finding]:
    """Look at this machine. Imports NumPy, runs nothing of the user's, and reaches no network."""
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
    findings.append(Finding("GPU", _gpu()))
    findings.append(
        Finding(
            "float64 products",
            "native; float32 where a plan says so and the product is large enough",
        )
    )
    findings.append(Finding("float32 products", "native"))
    findings.append(
        Finding("emulated schemes", "the reference backend in NumPy, with --backend reference")
    )
    return findings


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


def _gpu() -> str:
    if importlib.util.find_spec("cupy") is None:
        return "not looked for: CuPy is not installed; nothing here needs it"
    import cupy

    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"none: {error}"
    return f"{count} found; this version multiplies on the CPU only"
