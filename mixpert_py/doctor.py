"""An examination of this machine: its packages, its GPU, and what would run where.

Also compilation before a program runs: what the default, or a plan, will need on this GPU.
"""

import datetime
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from time import perf_counter
from typing import TYPE_CHECKING

from mixpert_py import __version__, config
from mixpert_py.errors import DeviceError
from mixpert_py.plan import Plan

if TYPE_CHECKING:
    from mixpert_py.runtime.gpu.device import Absent, Device
    from mixpert_py.runtime.gpu.warm import Expected

PACKAGES = ("numpy", "libcst", "click", "rich", "msgspec", "tomlkit", "networkx")
GPU = "products on a GPU (pip install '.[cuda13]' in a checkout)"
GPU_PACKAGES = {
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "numba-cuda": ("numba-cuda",),
}
OPTIONAL = {"scikit-learn": "the samples on real data (pip install '.[samples]' in a checkout)"}
Shape = tuple[int, int, int]
# Where no shapes are known: (m, k, n) of products, on which tiles and packing kernels depend.
SHAPES: tuple[Shape, ...] = tuple((n, n, n) for n in (768, 1024, 1536, 2048, 3072, 4096, 8192))
LAYOUTS = tuple(product((False, True), repeat=2))  # whether columns of A, and of B, are contiguous


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the examination: its subject, what was found, and whether that is fine."""

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


def compile_for(plans: Iterable[Plan]) -> list[Finding]:
    """Compile what the sites of plans will need, or the default where there is no plan, and keep it
    on disk. Raises DeviceError where there is no GPU.
    """
    from mixpert_py.runtime.gpu.device import Absent, find

    gpu = find()
    if isinstance(gpu, Absent):
        raise DeviceError(f"--warm compiles for the GPU that is here: {gpu.sentence}")
    found = [_warmed(gpu, *entry) for entry in expectations(plans).items()]
    return found or [Finding("kernels", "no site of the plan has a scheme with kernels of ours")]


def expectations(plans: Iterable[Plan]) -> "dict[Expected, list[Shape]]":
    """The products to be expected, and their shapes: of a plan's sites those that it lists.

    A plan does not say of which type operands are, so that they may be of either.
    """
    from mixpert_py.runtime.gpu.warm import Expected
    from mixpert_py.runtime.schemes import get

    plans = list(plans)
    if not plans:
        return {Expected("faithful", None, "float32"): list(SHAPES)}
    found: dict[Expected, list[Shape]] = {}
    for site in (site for plan in plans for site in plan.site):
        scheme = site.scheme
        dtypes: tuple[str, ...] = ("float32", "float64")
        if scheme == "float32":  # of float64 arrays on a GPU it is the default
            scheme, dtypes = "faithful", ("float64",)
        if get(scheme).kind not in ("emulation", "choice"):
            continue
        shapes = [(m, k, n) for m, k, n in filter(_is_product, site.shapes)]
        for dtype in dtypes:
            known = found.setdefault(Expected(scheme, site.block, dtype), [])
            known += [shape for shape in shapes or SHAPES if shape not in known]
    return found


def _is_product(shape: list[int]) -> bool:
    """Return whether a plan's entry holds three sizes (m, k, n), none of which is 0."""
    return len(shape) == 3 and 0 not in shape


def _warmed(gpu: "Device", expected: "Expected", shapes: list[Shape]) -> Finding:
    """Compile for these products, and say what that was."""
    from mixpert_py.runtime.gpu.multiply import refusals
    from mixpert_py.runtime.gpu.warm import compile_kernels
    from mixpert_py.runtime.kernels.compile import origins
    from mixpert_py.runtime.worth import emulation_on_gpu, figures

    scheme, block, dtype = expected
    what = f"{scheme} of {dtype}" if block is None else f"{scheme} of {dtype}, blocks of {block}"
    before, start = origins.copy(), perf_counter()
    count = 0
    for shape in shapes:
        m, k, n = shape
        try:
            if not figures(gpu.name).faster(scheme, (m, k), (k, n), dtype == "float64", 0):
                continue
        except DeviceError as error:  # no tile holds the scheme's sums
            return Finding(what, str(error), fine=False)
        count += 1
        for a_turned, b_turned in LAYOUTS:
            reason = compile_kernels(expected, shape, a_turned=a_turned, b_turned=b_turned)
            if reason is not None:
                message = refusals().get((gpu.id, emulation_on_gpu(scheme, m * k * n).name))
                return Finding(what, f"{message or reason}", fine=False)
    if not count:
        return Finding(what, "nothing to compile: products of these sizes are native")
    made = origins - before
    return Finding(
        what,
        f"{made['compiled']} kernels compiled, {made['shipped']} came with the package; "
        f"{perf_counter() - start:.1f} s",
    )
