"""Speed and accuracy of float32 products: our schemes beside every mode of cuBLAS.

A result is {"machine": …, "sections": {name: rows}}. Sections: `speed N`, `accuracy FAMILY N` (one
draw of operands, all contenders), `families FAMILY N` (three draws, the contract of `faithful`),
and `loops`, what a program sees that makes one product after another.
"""

import ctypes
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import median
from types import ModuleType
from typing import Any, Literal, NamedTuple

import click
import numpy as np

import mixpert_py
from mixpert_py.cli import main
from mixpert_py.runtime.context import current, use
from mixpert_py.runtime.gpu import multiply as gpu_backend
from mixpert_py.runtime.packing import by_columns, by_rows
from mixpert_py.runtime.probes.gpu import EventClock, SampleClock, TimedCall
from mixpert_py.runtime.probes.gpu import in_turn as events_in_turn
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get
from mixpert_py.runtime.tracing.trace import Trace
from tests.benchmarks import machine
from tests.benchmarks.contract import (
    LARGEST,
    ROUNDINGS,
    Errors,
    Exact,
    Sums,
    errors,
    in_json,
    judge,
)
from tests.benchmarks.families import EVERYDAY, FAMILIES, Array, Family, Numbers, narrow, wide
from tests.benchmarks.machine import table
from tests.benchmarks.timing import error_line, in_turn, ratio, summary, timing


@dataclass(frozen=True, slots=True)
class Parts:
    """A product ready to be called. packing, gemm: its two parts alone, where it has them."""

    whole: TimedCall
    packing: TimedCall | None = None
    gemm: TimedCall | None = None


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to multiply float32 operands. prepare: a (…, m, k), b (…, k, n) → its calls."""

    name: str
    kind: Literal["scheme", "vendor"]
    prepare: Callable[[Array, Array], Parts]


def calls(parts: dict[str, Parts]) -> dict[str, TimedCall]:
    """Every call there is, by "name", "name packing" and "name gemm"."""
    found: dict[str, Any] = {}
    for name, part in parts.items():
        found[name] = part.whole
        if part.packing is not None:
            found[f"{name} packing"] = part.packing
        if part.gemm is not None:
            found[f"{name} gemm"] = part.gemm
    return found


def of_scheme(name: str, backend: str | None = None) -> Contender:
    """A scheme as a contender: `mixpert_py.matmul(a, b, scheme=name)`.

    backend: the backend that makes the product, whether it is profitable or not.
    """

    def prepare(a: Array, b: Array) -> Parts:
        def whole() -> Any:
            return mixpert_py.matmul(a, b, scheme=name, backend=backend)

        return Parts(whole, *_scheme_parts(a, b, name))

    return Contender(name, "scheme", prepare)


def ran(a: Array, b: Array, name: str) -> str:
    """The name of what runs for these operands, with the reason where it is not the scheme."""
    trace = Trace()
    with use(replace(current(), trace=trace)):
        mixpert_py.matmul(a, b, scheme=name)
    (site,) = trace.sites.values()
    (scheme,) = site.schemes
    return f"{scheme} ({', '.join(site.reasons)})" if site.reasons else scheme


def _scheme_parts(a: Array, b: Array, name: str) -> tuple[TimedCall, TimedCall] | tuple[()]:
    """The calls that pack both operands and that multiply them packed; none without a GPU."""
    scheme = get(name)
    if not isinstance(scheme, Scheme) or isinstance(a, np.ndarray):
        return ()
    kernels = gpu_backend.cuda_kernels()
    out = kernels.xp.empty((len(a) if a.ndim == 3 else 1, a.shape[-2], b.shape[-1]), a.dtype)
    stream = kernels.xp.cuda.get_current_stream().ptr

    def pack() -> Any:
        return kernels.pack(by_rows(a), by_columns(b), scheme, stream=stream)

    left, right = pack()
    return pack, lambda: kernels.gemm(left, right, scheme, out, stream=stream)


# cublasComputeType_t, cublasOperation_t, cudaDataType_t.
COMPUTE_32F, COMPUTE_32F_PEDANTIC, COMPUTE_64F = 68, 69, 70
COMPUTE_32F_FAST_TF32, COMPUTE_32F_EMULATED_16BFX9 = 77, 78
NO_TRANSPOSE, TRANSPOSE = 0, 1
DATA_TYPES = {"float32": 0, "float64": 1, "float16": 2}
DEFAULT_ALGORITHM = -1


@dataclass(frozen=True, slots=True)
class Mode:
    """A mode in which cuBLAS multiplies FP32 operands.

    element: what the operands are cast to, if they are not. The result is float64 for float64,
    else float32. emulated: whether the library may run something else in its place.
    """

    name: str
    element: str
    compute: int
    emulated: bool = False


MODES = {
    mode.name: mode
    for mode in (
        Mode("cuBLAS FP32", "float32", COMPUTE_32F),
        Mode("cuBLAS FP32 pedantic", "float32", COMPUTE_32F_PEDANTIC),
        Mode("cuBLAS TF32", "float32", COMPUTE_32F_FAST_TF32),
        Mode("cuBLAS FP16", "float16", COMPUTE_32F),
        Mode("cuBLAS FP64", "float64", COMPUTE_64F),
        Mode("cuBLAS BF16x9", "float32", COMPUTE_32F_EMULATED_16BFX9, emulated=True),
    )
}
FP32, TF32 = MODES["cuBLAS FP32"], MODES["cuBLAS TF32"]


def of_vendor(mode: Mode) -> Contender:
    """A mode of cuBLAS as a contender; operands are cast where the mode needs it."""

    def prepare(a: Array, b: Array) -> Parts:
        if mode.element == a.dtype:
            return Parts(lambda: product(mode, a, b))
        left, right = _cast(a, mode), _cast(b, mode)
        return Parts(
            lambda: product(mode, _cast(a, mode), _cast(b, mode)),
            lambda: (_cast(a, mode), _cast(b, mode)),
            lambda: product(mode, left, right),
        )

    return Contender(mode.name, "vendor", prepare)


def offered(mode: Mode) -> str | None:
    """The reason why this library does not offer a mode on this device; None where it does."""
    import cupy
    from cupy_backends.cuda.libs.cublas import CUBLASError

    a = cupy.asarray(np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32))
    try:
        value = product(mode, a.astype(mode.element), a.astype(mode.element))
    except CUBLASError as error:
        return f"not offered: {error}"
    if mode.emulated and bool((value == product(FP32, a, a)).all()):
        return "not offered: the library runs its FP32 product instead"
    return None


def product(mode: Mode, a: Array, b: Array) -> Array:
    """C (…, m, n) of a (…, m, k) and b (…, k, n), of the mode's element type, on the device.

    The last two axes of each operand are contiguous in either order; stacks are evenly spaced.
    """
    import cupy
    from cupy_backends.cuda.libs import cublas

    (m, k), n = a.shape[-2:], b.shape[-1]
    out = cupy.empty((*a.shape[:-1], n), _result(mode))
    scalar = ctypes.c_double if mode.compute == COMPUTE_64F else ctypes.c_float
    one, zero = scalar(1), scalar(0)
    kind, result = DATA_TYPES[mode.element], DATA_TYPES[_result(mode)]
    # cuBLAS stores by columns: our C by rows is its Cᵀ = Bᵀ · Aᵀ.
    (transpose_b, ldb), (transpose_a, lda) = _place(b), _place(a)
    common = (cupy.cuda.device.get_cublas_handle(), transpose_b, transpose_a, n, m, k)
    alpha, beta = ctypes.addressof(one), ctypes.addressof(zero)
    if a.ndim == 2:
        cublas.gemmEx(
            *(*common, alpha, b.data.ptr, kind, ldb, a.data.ptr, kind, lda),
            *(beta, out.data.ptr, result, n, mode.compute, DEFAULT_ALGORITHM),
        )
    else:
        cublas.gemmStridedBatchedEx(
            *(*common, alpha, b.data.ptr, kind, ldb, _step(b), a.data.ptr, kind, lda, _step(a)),
            *(beta, out.data.ptr, result, n, m * n, math.prod(a.shape[:-2])),
            *(mode.compute, DEFAULT_ALGORITHM),
        )
    return out


def _cast(x: Array, mode: Mode) -> Array:
    return wide(x) if mode.element == "float64" else x.astype(mode.element)


def _result(mode: Mode) -> str:
    return "float64" if mode.element == "float64" else "float32"


def _place(x: Array) -> tuple[int, int]:
    """(operation, leading dimension) of a row-major matrix, or its transpose, seen by columns."""
    rows, columns = (stride // x.itemsize for stride in x.strides[-2:])
    if columns == 1:
        return NO_TRANSPOSE, max(rows, x.shape[-1])
    return TRANSPOSE, max(columns, x.shape[-2])


def _step(x: Array) -> Any:
    return x.strides[-3] // x.itemsize


Shape = tuple[int, int, int]  # m, k, n
Record = dict[str, Any]
Rows = list[list[str]]
Section = Callable[[], list[Record]]
Sections = Mapping[str, Sequence[Record]]

SIZES = (1024, 2048, 4096, 8192, 16384)
SCHEMES = (
    *("faithful", "int8x10", "int8x8", "int8x6", "int8x3", "int8x1", "fp16x3", "legemm"),
    *("egemm", "mixpert-IV", "bf16x6", "tf32x3", "fp16"),
)
BASE, DEFAULT = FP32.name, "faithful"
JUDGED = (BASE, DEFAULT, "fp16x3", "bf16x6", "int8x6")  # against the contract, on every family
SHOWN = (BASE, DEFAULT, "int8x6")  # of JUDGED
DRAWS = 3
ERROR_SIZE = 2048
KNOWN: Mapping[str, Family] = {**FAMILIES, **EVERYDAY}
LOOP_SIZES = (64, 128, 256, 512, 768, 1024, 1536, 2048, 4096, 8192)
GPU_ROUNDS, LARGE_ROUNDS, LOOP_ROUNDS = 20, 5, 15
LARGE = 1 << 39  # multiplications
MULTIPLICATIONS = 1e11  # of a loop, within the limits of its number of steps
MIN_STEPS, MAX_STEPS = 8, 2000
SITE = "bench:<module>/matmul~0000#0"
LOOP = f"{DEFAULT}, called in a loop"
# The README's rows: the vendor's products, and the levels that a tuning on a GPU may choose.
LEVELS = (
    *("cuBLAS FP64", "cuBLAS FP32", "cuBLAS TF32"),
    *("int8x10", DEFAULT, LOOP, "int8x6", "int8x3"),
)


@dataclass(frozen=True, slots=True)
class Bench:
    """Arrays (xp: NumPy or CuPy), clock, contenders by name, and the rounds of a measurement."""

    xp: Any
    clock: SampleClock
    contenders: Mapping[str, Contender]
    rounds: int

    def operands(
        self, m: int, k: int, n: int, family: str = "normal", draw: int = 0
    ) -> tuple[Array, Array]:
        """Fresh float32 operands of a family; the seed depends on the shape and the draw alone."""
        a, b = KNOWN[family](Numbers(self.xp, m + k + n + (draw << 32)), m, k, n)
        return narrow(a, np.float32), narrow(b, np.float32)


def standard(cupy: ModuleType, rounds: int) -> tuple[Bench, dict[str, str]]:
    """The bench on the current GPU, and the modes of cuBLAS that it lacks, each with the reason."""
    missing = {name: why for name, mode in MODES.items() if (why := offered(mode))}
    chosen = {n: of_vendor(mode) for n, mode in MODES.items() if n not in missing}
    chosen |= {name: of_scheme(name) for name in SCHEMES}
    return Bench(cupy, EventClock(cupy), chosen, rounds), missing


def speed(bench: Bench, m: int, k: int, n: int) -> list[Record]:
    """Times of every contender at one shape, whole and in parts, on fresh normal operands."""
    a, b = bench.operands(m, k, n)
    parts, failed = {}, {}
    for contender in bench.contenders.values():
        try:
            parts[contender.name] = ready = contender.prepare(a, b)
            ready.whole()
        except Exception as error:  # the other contenders are measured all the same
            failed[contender.name] = error_line(error)
            parts.pop(contender.name, None)
    rounds = bench.rounds if m * k * n < LARGE else LARGE_ROUNDS
    samples = events_in_turn(bench.clock, calls(parts), rounds)
    rows = []
    for contender in bench.contenders.values():
        name = contender.name
        row: Record = {"name": name, "kind": contender.kind, "m": m, "k": k, "n": n}
        rows.append(row)
        if name in failed:
            row["failed"] = failed[name]
            continue
        row["seconds"] = timing(samples[name])
        row["tflops"] = 2e-12 * m * n * k / row["seconds"]["median"]
        for part in ("packing", "gemm"):
            if f"{name} {part}" in samples:
                row[part] = timing(samples[f"{name} {part}"])
        if BASE in samples:
            row["speedup"] = ratio(samples[BASE], samples[name])
        if contender.kind == "scheme":
            row["ran"] = ran(a, b, name)
    return rows


def accuracy(bench: Bench, family: str, n: int) -> list[Record]:
    """Errors and grade of every contender on n³ products of a family, against FP64."""
    a, b = bench.operands(n, n, n, family)
    exact = Exact.of(a, b)
    rows = []
    for contender in bench.contenders.values():
        row: Record = {"name": contender.name, "kind": contender.kind, "family": family, "n": n}
        try:
            found = judge(exact, contender.prepare(a, b).whole()).record()
            row |= {"frobenius": found["frobenius"], "grade": found["grade"]}
        except Exception as error:  # the other contenders are judged all the same
            row["failed"] = error_line(error)
        rows.append(row)
    return rows


def contract(bench: Bench, family: str, n: int, draws: int = DRAWS) -> list[Record]:
    """A row for each of JUDGED: its largest errors over draws, absolute and over what is allowed.

    Every contender multiplies the same operands, and each draw is compared by itself.
    """
    vendor = bench.contenders[BASE]
    judged = [bench.contenders[name] for name in JUDGED if name in bench.contenders]
    found: dict[str, list[tuple[Errors, Errors]]] = {one.name: [] for one in judged}
    failed: dict[str, str] = {}
    sums = []
    for draw in range(draws):
        a, b = bench.operands(n, n, n, family, draw)
        exact = Exact.of(a, b)
        sums.append(Sums.of(exact))
        allowed = errors(exact, vendor.prepare(a, b).whole())
        for one in judged:
            try:
                own = errors(exact, one.prepare(a, b).whole()) if one is not vendor else allowed
                found[one.name].append((own, own.over(allowed, sums[-1].floor)))
            except Exception as error:  # the other contenders are judged all the same
                failed[one.name] = error_line(error)
    middle = Sums(median(one.terms for one in sums), median(one.floor for one in sums))
    rows = []
    for one in judged:
        row: Record = {"name": one.name, "family": family, "n": n, "draws": draws}
        row |= in_json(asdict(middle))
        rows.append(row)
        if one.name in failed:
            row["failed"] = failed[one.name]
            continue
        own, over = (_largest(pair) for pair in zip(*found[one.name], strict=True))
        row |= in_json(asdict(own))
        row |= {f"{name}_over": value for name, value in in_json(asdict(over)).items()}
    return rows


def _largest(found: Sequence[Errors]) -> Errors:
    return Errors(max(e.frobenius for e in found), max(e.componentwise for e in found))


def loops(cupy: Any) -> list[Record]:
    """Microseconds of a step of `x = a @ x`, natively and as the default, by wall clock."""
    return [_loop(cupy, n) for n in LOOP_SIZES]


def _loop(cupy: Any, n: int) -> Record:
    a = cupy.random.default_rng(0).standard_normal((n, n), "float32") / np.float32(n**0.5)
    start = cupy.random.default_rng(1).standard_normal((n, n), "float32")
    steps = max(MIN_STEPS, min(MAX_STEPS, round(MULTIPLICATIONS / n**3)))

    def run(product: Callable[[Array, Array], Array]) -> None:
        x = start
        for _ in range(steps):
            x = product(a, x)
        cupy.cuda.Device().synchronize()

    ours = partial(mixpert_py.matmul, site=SITE)
    run(ours)
    times = in_turn(
        {"native": lambda: run(lambda a, x: a @ x), "ours": lambda: run(ours)}, LOOP_ROUNDS
    )
    row = {name: summary([1e6 * t / steps for t in found]) for name, found in times.items()}
    return {"n": n, **row, "ratio": row["native"]["median"] / row["ours"]["median"]}


def sections(bench: Bench, sizes: Sequence[int], families: Iterable[str]) -> dict[str, Section]:
    """Every section by its name, in the order in which they run."""
    found: dict[str, Section] = {"loops": lambda: loops(bench.xp)}
    found |= {f"speed {n}": partial(speed, bench, n, n, n) for n in sizes}
    cases = [*((family, ERROR_SIZE) for family in families), *(("normal", n) for n in sizes)]
    found |= {f"accuracy {family} {n}": partial(accuracy, bench, family, n) for family, n in cases}
    return found | {
        f"families {family} {ERROR_SIZE}": partial(contract, bench, family, ERROR_SIZE)
        for family in families
    }


class Point(NamedTuple):
    """A contender. tflops: packing and casts included. error: Frobenius, on normal data."""

    name: str
    tflops: float
    error: float


def points(found: Sections, size: int) -> list[Point]:
    """Contenders with a time and an error at size³, without FP64, whose error is 0."""
    errors = _errors(found, size)
    return [
        Point(row["name"], row["tflops"], errors[row["name"]])
        for row in found.get(f"speed {size}", ())
        if "failed" not in row and 0 < errors.get(row["name"], 0) < math.inf
    ]


def levels_markdown(result: Record) -> str:
    """The README's table: LEVELS by size, the error on normal data and on the worst family."""
    found: Sections = result["sections"]
    middle = _middle(found)
    sizes = [size for size in _sizes(found) if size <= middle]
    judged = [
        row
        for name, rows in found.items()
        if name.startswith(("accuracy", "families")) and name.endswith(f" {ERROR_SIZE}")
        for row in rows
        if "failed" not in row
    ]
    looped = {row["n"]: row for row in found["loops"]}
    errors, worst = _errors(found, middle), _worst_families(judged)
    rows = []
    for name in LEVELS:
        if name == LOOP:
            rows.append([name, *(_loop_cell(looped.get(size)) for size in sizes), "", ""])
            continue
        error = f"{errors[name]:.1e}" if errors.get(name) else "–"
        cells = (_cell(_speeds(found, size).get(name)) for size in sizes)
        rows.append([name, *cells, error, worst.get(name, "–")])
    columns = ["", *(f"{n}³" for n in sizes), f"error at {middle}³"]
    columns.append(f"worst family at {ERROR_SIZE}³")
    return (
        f"{table(columns, rows)}\n\n"
        "TFLOP/s of n³ products (in brackets: times cuBLAS FP32), timed on the device, "
        "packing and casts included; the row *called in a loop* is `x = a @ x` by wall clock. "
        "Errors: relative Frobenius, against FP64, on normal data; the largest on "
        f"{len({row['family'] for row in judged})} families of operands. "
        f"{machine.text(result['machine'], versions=True)}\n"
    )


def speeds_markdown(result: Record) -> str:
    """Contenders by size with their errors and grades; and the loops."""
    found: Sections = result["sections"]
    sizes, middle = _sizes(found), _middle(found)
    errors, grades = _errors(found, middle), _grades(found)
    names = dict.fromkeys(row["name"] for size in sizes for row in found[f"speed {size}"])
    rows = [
        [
            name,
            *(_cell(_speeds(found, size).get(name)) for size in sizes),
            f"{errors[name]:.1e}" if errors.get(name) else "–",
            grades.get(name) or "–",
        ]
        for name in names
    ]
    columns = ["", *(f"{n}³" for n in sizes), f"error at {middle}³", "grades"]
    looped = []
    for row in found["loops"]:
        digits = 1 if row["n"] < 1024 else 0
        times = (f"{row[name]['median']:.{digits}f}" for name in ("native", "ours"))
        looped.append([str(row["n"]), *times, f"{row['ratio']:.2f}×"])
    loop_columns = ("`x = a @ x`, n × n", "native, µs", "MixPert-Py, µs", "native over MixPert-Py")
    missing = result["machine"].get("not offered", {})
    left_out = "".join(f" {name} is {why}." for name, why in missing.items())
    return (
        f"{table(columns, rows)}\n\n"
        "TFLOP/s of n³ products (and how many times cuBLAS FP32's speed), packing and casts "
        "included; relative Frobenius error on normal data; the grades held on every family of "
        f"operands. {machine.text(result['machine'], versions=True)}{left_out}\n\n"
        f"{table(loop_columns, looped)}\n\n"
        "The same machine, by wall clock: a step of a loop, medians.\n"
    )


def families_markdown(result: Record) -> str:
    """A row for every family: errors of SHOWN, and how near the contract `faithful` is."""
    rows: Rows = []
    draws = DRAWS
    for name, found in result["sections"].items():
        if not name.startswith("families"):
            continue
        by_name = {row["name"]: row for row in found}
        draws = found[0]["draws"]
        default = by_name[DEFAULT]
        over = (default.get(f"{kind}_over") for kind in ("frobenius", "componentwise"))
        cells = (_error_cell(by_name.get(one)) for one in SHOWN)
        rows.append([found[0]["family"], *cells, *map(_over, over)])
    columns = ["data", *SHOWN, f"{DEFAULT} over allowed: norm", "largest"]
    return (
        f"{table(columns, rows)}\n\n"
        f"‖E‖F / ‖C‖F against FP64, the worst of {draws} draws of {ERROR_SIZE}³ operands. The "
        "last two columns divide the error of `faithful`, as a norm and as the largest "
        "|E| / (|A||B|) of an element, by what its contract allows: the error of cuBLAS FP32 on "
        f"the same operands, or where that is less {ROUNDINGS:g} u ‖√((A∘A)(B∘B))‖F / ‖C‖F for the "
        f"norm and {LARGEST:g} u for the largest, u = 2^-24. {machine.text(result['machine'])}\n"
    )


def _sizes(found: Sections) -> list[int]:
    return sorted(int(name.split()[1]) for name in found if name.startswith("speed"))


def _middle(found: Sections) -> int:
    """The size of which errors are shown: the largest up to 8192."""
    return max(size for size in _sizes(found) if size <= 8192)


def _speeds(found: Sections, size: int) -> dict[str, Record]:
    return {row["name"]: row for row in found[f"speed {size}"] if "failed" not in row}


def _errors(found: Sections, size: int) -> dict[str, float]:
    rows = found.get(f"accuracy normal {size}", ())
    return {row["name"]: float(row["frobenius"]) for row in rows if "failed" not in row}


def _worst_families(judged: Iterable[Record]) -> dict[str, str]:
    """Contender → its largest Frobenius error of all rows, and the family of operands."""
    found: dict[str, tuple[float, str]] = {}
    for row in judged:
        error = float(row["frobenius"])
        worst = (math.inf if math.isnan(error) else error, row["family"])
        found[row["name"]] = max(found.get(row["name"], (0.0, "")), worst, key=lambda it: it[0])
    return {name: f"{error:.1e} ({family})" for name, (error, family) in found.items() if error}


def _grades(found: Sections) -> dict[str, str]:
    """The grades that a contender earned wherever it was judged."""
    held: dict[str, set[str]] = {}
    for name, rows in found.items():
        if name.startswith("accuracy"):
            for row in rows:
                earned = set(row.get("grade", ""))
                held[row["name"]] = held.get(row["name"], earned) & earned
    return {name: "".join(sorted(grades)) for name, grades in held.items()}


def _cell(row: Record | None) -> str:
    if row is None:
        return "–"
    times = f" ({row['speedup']['median']:.1f}×)" if "speedup" in row else ""
    native = "" if row.get("ran", row["name"]) == row["name"] else " native"
    return f"{row['tflops']:.0f}{times}{native}"


def _loop_cell(row: Record | None) -> str:
    if row is None:
        return "–"
    return f"{2e-6 * row['n'] ** 3 / row['ours']['median']:.0f} ({row['ratio']:.1f}×)"


def _error_cell(row: Record | None) -> str:
    if row is None or "failed" in row:
        return "failed" if row else "–"
    return f"{float(row['frobenius']):.1e}"


def _over(value: float | str | None) -> str:
    """A ratio as text, rounded up, so that none above 1 is shown as 1."""
    if value is None:
        return "–"
    number = float(value)
    if number >= 10 or math.isnan(number):
        return f"{number:,.0f}×"
    return f"{math.ceil(100 * number - 1e-9) / 100:.2f}×"


@click.command()
@click.option("--only", multiple=True, metavar="WORD", help="Sections that begin so.")
@click.option("--save", is_flag=True, help="Write each section into the result as it comes.")
def command(only: tuple[str, ...], save: bool) -> int:
    """Schemes against every mode of cuBLAS on this GPU: time, error, grade."""
    bench, missing = standard(machine.gpu(), GPU_ROUNDS)
    facts = {**machine.facts_of_gpu(), "not offered": missing}
    result: Record = {"machine": facts, "sections": {}}
    before = machine.load("gemm") if save and only else None
    if before is not None and before["machine"]["device"] == facts["device"]:
        result["sections"] = before["sections"]
    failed = False
    for name, measure in sections(bench, SIZES, KNOWN).items():
        if only and not name.startswith(only):
            continue
        try:
            result["sections"][name] = measure()
        except Exception as error:  # the sections after it are measured all the same
            failed = True
            click.echo(f"{name}: {error_line(error)}", err=True)
            continue
        for row in result["sections"][name]:
            click.echo(f"{name}: {machine.rounded(row)}")
        if save:
            machine.save("gemm", result)
    return int(failed)


if __name__ == "__main__":
    main(command, "python -m tests.benchmarks.gemm")
