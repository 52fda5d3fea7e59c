"""The speeds and errors wanted on one H200: `mixpert bench gemm --suite targets`.

On random normal float32 operands, packing included, cuBLAS measured in the same rounds.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

from mixpert_py.bench.arrays import Array
from mixpert_py.bench.gemm import first_call, ours, vendor
from mixpert_py.bench.gemm.contender import calls
from mixpert_py.bench.gemm.sizes import Bench, Section, Shape, error_line, text
from mixpert_py.bench.gemm.tables import Record
from mixpert_py.bench.judgement import Exact, Judgement, judge
from mixpert_py.bench.timing import ratio, summary, timing
from mixpert_py.runtime.gpu.event_clock import in_turn
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import get
from mixpert_py.runtime.splitter import INT8_RATE

Measure = Callable[[Bench], list[Record]]

FAMILIES = ("normal", "uniform [-1, 1)", "uniform [0, 1)")
LENGTHS = (1024, 2048, 4096, 8192, 16384)
WIDE = (
    *(("spread 4", 2048, 0.65), ("spread 4", 4096, 0.5), ("spread 4", 8192, 0.5)),
    ("RBF kernel", 4096, 0.5),
)
FULL = 8192
BATCH = (1000, 128)
CUBE = (FULL, FULL, FULL)


@dataclass(frozen=True, slots=True)
class Target:
    """A line of the table of targets: what is measured, at which shape, and what is wanted."""

    section: str
    what: str
    at: str
    sense: Literal["≥", "≤"]
    wanted: float
    unit: str

    def row(self, measured: dict[str, float], detail: str = "") -> Record:
        """The line with what was measured; its median decides whether the target is met."""
        value = measured["median"]
        met = value >= self.wanted if self.sense == "≥" else value <= self.wanted
        return {**asdict(self), "measured": measured, "met": met, "detail": detail}

    def missing(self, why: str) -> Record:
        """The line where nothing could be measured."""
        return {**asdict(self), "measured": None, "met": False, "detail": why}


def once(value: float) -> dict[str, float]:
    """A figure that has no spread, such as an error."""
    return {"median": value, "lower": value, "upper": value, "runs": 1}


def sections(bench: Bench) -> dict[str, Section]:
    """Every section by its name, in the order they run."""
    return {name: partial(section, bench) for name, section in MEASURES.items()}


def cubes(wanted: dict[int, float]) -> dict[Shape, float]:
    """Targets of n³ products."""
    return {(n, n, n): least for n, least in wanted.items()}


def over_fp32(section: str, name: str, wanted: dict[Shape, float]) -> Measure:
    """A scheme against cuBLAS FP32 at several shapes."""

    def rows(bench: Bench) -> list[Record]:
        return [
            _race(
                bench,
                Target(section, f"{name} over cuBLAS FP32", text(shape), "≥", least, "×"),
                (vendor.FP32.name, name),
                *bench.operands(*shape),
            )
            for shape, least in wanted.items()
        ]

    return rows


def papers(bench: Bench) -> list[Record]:
    """The schemes of the papers against cuBLAS FP32."""
    wanted = {"fp16x3": 4.2, "legemm": 3.8, "egemm": 3.0, "mixpert-IV": 1.5}
    sections = [over_fp32("papers", name, {CUBE: t}) for name, t in wanted.items()]
    return [row for section in sections for row in section(bench)]


def kernel(bench: Bench) -> list[Record]:
    """int8x6's GEMM kernel alone, of the time that the tensor cores' peak rate would take.

    In turn with cuBLAS FP32, as the products are that it is part of; and back to back, where the
    chip's power limit lowers its clock.
    """
    scheme, at = _scheme("int8x6"), text(CUBE)
    target = Target("kernel", "int8x6, kernel alone, of its bound", at, "≥", 90.0, "%")
    a, b = bench.operands(*CUBE)
    gemm = bench.contenders["int8x6"].prepare(a, b).gemm
    if gemm is None:
        return [target.missing("the kernel cannot be called alone")]
    vendors = bench.contenders[vendor.FP32.name].prepare(a, b).whole
    turns = in_turn(bench.clock, {"vendor": vendors, "gemm": gemm}, bench.rounds)["gemm"]
    alone = in_turn(bench.clock, {"gemm": gemm}, bench.rounds)["gemm"]
    least = scheme.products * 2 * FULL**3 / (INT8_RATE * 1e12)
    share, busy = (
        summary([100 * least / sample.device for sample in samples]) for samples in (turns, alone)
    )
    detail = f"{1e3 * timing(turns)['median']:.3f} ms; back to back {busy['median']:.1f} %"
    return [target.row(share, detail)]


def tf32(bench: Bench) -> list[Record]:
    """int8x3 against cuBLAS TF32, in speed and in error."""
    at = text(CUBE)
    a, b = bench.operands(*CUBE)
    pair = (vendor.TF32.name, "int8x3")
    faster = Target("tf32", "int8x3 over cuBLAS TF32", at, "≥", 1.3, "×")
    errors = [judged.frobenius for judged in _judged(bench, pair, a, b)]
    better = Target("tf32", "int8x3's error over cuBLAS TF32's", at, "≤", 0.35, "×")
    return [
        _race(bench, faster, pair, a, b),
        better.row(once(errors[1] / errors[0]), f"{errors[1]:.2e} against {errors[0]:.2e}"),
    ]


def batched(bench: Bench) -> list[Record]:
    """A thousand small products in one call."""
    count, size = BATCH
    at = f"{count} × {size}³"
    target = Target("batched", "int8x6 over cuBLAS batched FP32", at, "≥", 1.5, "×")
    pair = (vendor.FP32.name, "int8x6")
    return [_race(bench, target, pair, *bench.stacks(count, size, size, size))]


def layouts(bench: Bench) -> list[Record]:
    """int8x6 on every combination of operands by rows (N) and by columns (T)."""
    a, b = bench.operands(*CUBE)
    orders: dict[str, Callable[[Array], Array]] = {
        "N": bench.xp.ascontiguousarray,
        "T": bench.xp.asfortranarray,
    }
    int8x6 = bench.contenders["int8x6"]
    prepared = {
        f"{one}{other}": int8x6.prepare(orders[one](a), orders[other](b)).whole
        for one in orders
        for other in orders
    }
    samples = in_turn(bench.clock, prepared, bench.rounds)
    medians = {name: timing(samples[name])["median"] for name in samples}
    apart = 100 * (max(medians.values()) / min(medians.values()) - 1)
    target = Target("layouts", "int8x6, layouts apart", text(CUBE), "≤", 5.0, "%")
    detail = ", ".join(f"{name} {1e3 * t:.3f} ms" for name, t in medians.items())
    return [target.row(once(apart), detail)]


def packing(bench: Bench) -> list[Record]:
    """Packing of both operands for int8x6: every element read once, every digit written once."""
    a, b = bench.operands(*CUBE)
    target = Target("packing", "packing of both operands, int8x6", f"{FULL}²", "≥", 3.2, "TB/s")
    alone = bench.contenders["int8x6"].prepare(a, b).packing
    if alone is None:
        return [target.missing("packing cannot be called alone")]
    moved = (a.size + b.size) * (a.itemsize + _scheme("int8x6").left.count)
    out = bench.xp.empty_like(a)

    def copy() -> None:
        out[...] = a

    samples = in_turn(bench.clock, {"packing": alone, "copy": copy}, bench.rounds)
    copied = 2 * a.nbytes / timing(samples["copy"])["median"]
    rate = summary([1e-12 * moved / sample.device for sample in samples["packing"]])
    share = rate["median"] * 1e12 / copied
    detail = f"a copy runs at {1e-12 * copied:.2f} TB/s: {100 * share:.0f} % of it"
    return [target.row(rate, detail)]


def accuracy(bench: Bench) -> list[Record]:
    """`faithful` is to have no larger an error than cuBLAS FP32, on three families at every K."""
    rows = []
    pair = (vendor.FP32.name, "faithful")
    for family in FAMILIES:
        for k in LENGTHS:
            a, b = bench.operands(k, k, k, family)
            theirs, own = _judged(bench, pair, a, b)
            what = f"faithful's error over cuBLAS FP32's, {family}"
            target = Target("accuracy", what, text((k, k, k)), "≤", 1.0, "×")
            detail = f"{own.frobenius:.2e} against {theirs.frobenius:.2e}, grade {own.grade}"
            detail += f", {ours.ran(a, b, 'faithful')}"
            rows.append(target.row(once(own.frobenius / theirs.frobenius), detail))
    return rows


def wide_range(bench: Bench) -> list[Record]:
    """The default where rows span more than its slices hold, and the wider scheme multiplies."""
    rows = []
    for family, n, most in WIDE:
        shape = (n, n, n)
        what = f"faithful's time over cuBLAS FP32's, {family}"
        target = Target("wide-range", what, text(shape), "≤", most, "×")
        pair = ("faithful", vendor.FP32.name)
        rows.append(_race(bench, target, pair, *bench.operands(*shape, family)))
    return rows


def host(bench: Bench) -> list[Record]:
    """The host's time for a call, and the first call of a process whose kernels are on disk."""
    a, b = bench.operands(1024, 1024, 1024)
    int8x6 = bench.contenders["int8x6"].prepare(a, b).whole
    native = bench.contenders[vendor.FP32.name].prepare(a, b).whole
    samples = in_turn(bench.clock, {"int8x6": int8x6, "cuBLAS": native}, bench.rounds)
    spent = summary([1e6 * sample.host for sample in samples["int8x6"]])
    other = 1e6 * timing(samples["cuBLAS"])["host"]
    dispatch = Target("host", "a call of int8x6, on the host", text((1024,) * 3), "≤", 60.0, "µs")
    first = Target("host", "first call, kernels on disk", "a fresh process", "≤", 1.5, "s")
    found = first_call.measure("int8x6")
    return [
        dispatch.row(spent, f"cuBLAS FP32: {other:.0f} µs; ran {ours.ran(a, b, 'int8x6')}"),
        first.row(found.call, found.detail),
    ]


MEASURES: dict[str, Measure] = {
    "int8x6": over_fp32(
        "int8x6", "int8x6", cubes({16384: 5.2, 8192: 5.3, 4096: 5.0, 2048: 3.5, 1024: 1.6})
    ),
    "kernel": kernel,
    "faithful": over_fp32("faithful", "faithful", cubes({8192: 5.0, 4096: 4.3, 2048: 3.5})),
    "tf32": tf32,
    "papers": papers,
    "skewed": over_fp32(
        "skewed",
        "int8x6",
        {
            (4096, 4096, 16384): 5.0,
            (4096, 16384, 4096): 5.0,
            (16384, 1024, 16384): 5.0,
            (8192, 256, 8192): 2.5,
        },
    ),
    "batched": batched,
    "layouts": layouts,
    "packing": packing,
    "accuracy": accuracy,
    "wide-range": wide_range,
    "host": host,
}


def _race(bench: Bench, target: Target, pair: tuple[str, str], a: Array, b: Array) -> Record:
    """The first's time over the second's, round by round."""
    try:
        parts = {name: bench.contenders[name].prepare(a, b) for name in pair}
        samples = in_turn(bench.clock, calls(parts), bench.rounds)
    except Exception as error:  # one scheme that fails leaves the others of its section
        return target.missing(error_line(error))
    first, second = pair
    times = {name: 1e3 * timing(taken)["median"] for name, taken in samples.items()}
    detail = ", ".join(f"{name} {time:.3f} ms" for name, time in times.items())
    own = first if second == vendor.FP32.name else second
    race = ratio(samples[first], samples[second])
    return target.row(race, f"{detail}; ran {ours.ran(a, b, own)}")


def _judged(bench: Bench, pair: tuple[str, str], a: Array, b: Array) -> list[Judgement]:
    exact = Exact.of(a, b)
    return [judge(exact, bench.contenders[name].prepare(a, b).whole()) for name in pair]


def _scheme(name: str) -> Scheme:
    entry = get(name)
    assert isinstance(entry, Scheme)
    return entry
