"""Compilation before a program runs: what the default, or a plan, will need on this GPU."""

from collections.abc import Iterable
from itertools import product
from time import perf_counter
from typing import TYPE_CHECKING

from mixpert_py.doctor import Finding
from mixpert_py.errors import DeviceError
from mixpert_py.plan import Plan

if TYPE_CHECKING:
    from mixpert_py.runtime.gpu.device import Device
    from mixpert_py.runtime.gpu.warm import Expected

Shape = tuple[int, int, int]

# Where no shapes are known: (m, k, n) of products, on which tiles and packing kernels depend.
SHAPES: tuple[Shape, ...] = tuple((n, n, n) for n in (768, 1024, 1536, 2048, 3072, 4096, 8192))
LAYOUTS = tuple(product((False, True), repeat=2))  # whether columns of A, and of B, are contiguous


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
    """Whether a plan's entry is m, k, n, and nothing is empty."""
    return len(shape) == 3 and 0 not in shape


def _warmed(gpu: "Device", expected: "Expected", shapes: list[Shape]) -> Finding:
    """Compile for these products, and say what that was."""
    from mixpert_py.runtime.gpu.break_even import figures
    from mixpert_py.runtime.gpu.multiply import refusals
    from mixpert_py.runtime.gpu.warm import compile_kernels
    from mixpert_py.runtime.kernels.compile import origins
    from mixpert_py.runtime.schemes import emulation_on_gpu

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
