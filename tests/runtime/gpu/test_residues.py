"""Packing and results of residue schemes: the CUDA kernels, run on the host, and around products in
exact integers, against the reference backend.
"""

import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.gpu import residues as products
from mixpert_py.runtime.gpu.gemm import BEST, KernelChoice, gemm
from mixpert_py.runtime.kernels.abi import LARGE, NONFINITE, STEP
from mixpert_py.runtime.packing import by_columns, by_rows, pack
from mixpert_py.runtime.packing import residues as packed_residues
from mixpert_py.runtime.packing.residues import TILE
from mixpert_py.runtime.reference import reference
from mixpert_py.runtime.reference import residues as meant
from mixpert_py.runtime.reference.residues import scales
from mixpert_py.runtime.schemes import emulation_of
from mixpert_py.runtime.schemes.crt import (
    BYTE,
    NONE,
    RECORD,
    UNFIT,
    Rows,
    moduli_for,
)
from mixpert_py.runtime.schemes.integers import (
    Bounds,
    Integers,
    digits_of,
    is_exact,
    scheme_for,
)
from mixpert_py.runtime.splitter import Residues
from tests.every_check import EVERY_CHECK, some
from tests.runtime.families import EVERYDAY, FAMILIES
from tests.runtime.kernels_on_host.host import (
    HostArray,
    HostKernel,
    Memory,
    kernels,
    seen,
)

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")

NOTHING = np.full(8, BYTE, np.uint8).view(float)[0]  # a record before anything is in it
SCHEMES = ("crt14", "crt8", "crt16") if EVERY_CHECK else ("crt14",)
ALL = {**FAMILIES, **EVERYDAY}
TYPES = ("float64", "float32") if EVERY_CHECK else ("float64",)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """`cuda_kernel`, for the host."""
    folder: Path = tmp_path_factory.mktemp("kernels")
    made: dict[Any, dict[str, HostKernel]] = {}

    def cuda_kernel(file: str, name: str, definitions: Any, shared: int = 0) -> Any:
        if file == products.WGMMA.file:
            return ExactProducts(definitions)
        key = file, definitions
        if key not in made:
            made[key] = kernels(file, definitions, folder / f"{len(made)}.so", "-O1")
        return made[key][name]

    return cuda_kernel


@pytest.fixture(autouse=True)
def on_host(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (packed_residues, products):
        monkeypatch.setattr(module, "cuda_kernel", compiled)
        monkeypatch.setattr(module, "allocate", lambda size, stream: Memory(size))
    monkeypatch.setattr(packed_residues, "shared_memory", lambda device: 227 * 1024)
    monkeypatch.setitem(sys.modules, "cupy", on_a("90"))
    for cache in (packed_residues.prepare, packed_residues.longest_row, products.prepare):
        cache.cache_clear()
    yield
    for cache in (packed_residues.prepare, packed_residues.longest_row, products.prepare):
        cache.cache_clear()


def on_a(capability: str, shared: int = 227 * 1024, multiprocessors: int = 132) -> Any:
    """As much of CuPy as says what a device is."""
    attributes = {
        "MaxSharedMemoryPerBlockOptin": shared,
        "MultiProcessorCount": multiprocessors,
    }
    its = SimpleNamespace(compute_capability=capability, attributes=attributes)
    return SimpleNamespace(cuda=SimpleNamespace(Device=lambda number: its))


class ExactProducts:
    count = 15  # of its arguments

    def __init__(self, definitions: tuple[tuple[str, Any], ...]) -> None:
        self._of = dict(definitions)
        self._moduli = [int(p) for p in self._of["MODULI"].split(", ")]

    def launch_words(self, grid: int, block: int, words: Any, shared: int, stream: object) -> None:
        *words, gate, wanted = words
        a, b, out, c, steps, rows, columns, _, m, n, leading, paired, triangle = words
        assert triangle == 0
        if gate and seen(gate, (1,), np.int32)[0] != wanted:
            return
        count = len(self._moduli)
        counts = self._of.get("A_DIGITS", count), self._of.get("B_DIGITS", count)
        left = residues_of(a, steps, counts[0], rows * TILE["left"])
        right = residues_of(b, steps, counts[1], columns * TILE["right"])
        if "A_DIGITS" in self._of:
            kind, size = (np.float32, 4) if self._of["SINGLE"] else (np.float64, 8)
            assert paired == ((c | leading * size) % (2 * size) == 0)
            bytes_of = {'"s8"': np.int8, '"u8"': np.uint8}
            x = left[:, :m].view(bytes_of[self._of["A_TYPE"]]).astype(np.int64)
            y = right[:, :n].view(bytes_of[self._of["B_TYPE"]]).astype(np.int64)
            whole, carried = np.zeros((m, n), np.int64), np.zeros((m, n), np.int64)
            for order in range(last := counts[0] + counts[1] - 1):
                for i, j in product(*map(range, counts)):
                    if i + j == order:
                        carried += x[i] @ y[j].T
                assert abs(carried).max() < 1 << 31
                whole += (carried & 255 if order < last - 1 else carried) << 8 * order
                carried >>= 8
            target = seen(c, ((m - 1) * leading + n,), kind)
            for row, values in enumerate(whole):
                target[row * leading : row * leading + n] = values
            return
        units = TILE["left"] // 64, TILE["right"] // 32
        target = seen(out, (count, rows, columns, *units, 128, 16), np.uint8)
        for x, y, p, place in zip(left, right, self._moduli, target, strict=True):
            found = x.astype(np.float64) @ y.astype(np.float64).T  # exact
            found = np.mod(found + p // 2, p).astype(np.uint8)
            # A thread of a warp has two neighbours of a row in each 8 columns, and 8 rows below.
            cut = found.reshape(rows, units[0], 4, 2, 8, columns, units[1], 4, 4, 2)
            place[...] = cut.transpose(0, 5, 1, 6, 2, 4, 8, 7, 3, 9).reshape(place.shape)


def residues_of(address: int, steps: int, count: int, rows: int) -> Any:
    """(count, rows, steps · 64) int8 of a packed operand."""
    swizzled = seen(address, (rows // 64, count, steps, 64, 4, 16), np.int8)
    found = np.empty_like(swizzled)
    for row in range(8):
        for chunk in range(4):
            found[:, :, :, row::8, chunk] = swizzled[:, :, :, row::8, chunk ^ (row >> 1 & 3)]
    return found.transpose(1, 0, 3, 2, 4, 5).reshape(count, rows, steps * STEP)


def rows_of_all_kinds(count: int, k: int, dtype: str) -> Any:
    """Normal numbers, and rows that are difficult."""
    rng = np.random.default_rng(k)
    x = rng.standard_normal((count, k))
    x[1], x[9], x[10], x[13] = 0, 1, 0, 0
    x[2] *= 2.0**1000
    x[3] *= 2.0**-1060
    x[4], x[4, 3 % k] = 0, 5e-324
    x[5] *= 10.0 ** rng.integers(-300, 300, k)
    x[6, 0], x[7, k - 1] = np.nan, -np.inf
    x[8] = rng.integers(-128, 128, k)
    x[10, k // 2] = -1.7976931348623157e308
    x[11] = 5e-324 * rng.integers(-3, 4, k)
    x[12] = 2.0 ** rng.integers(-60, 60, k)
    x[13, k // 3] = 1e-40
    with np.errstate(all="ignore"):
        return x.astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", SCHEMES)
def test_packed_rows_are_those_of_the_reference(name: str, dtype: str) -> None:
    scheme = emulation_of(name)
    splitter = scheme.left
    assert isinstance(splitter, Residues)
    shapes = [(19, 200, "C"), (40, 13, "F"), (14, 300, "F"), (15, 64, "C"), (14, 2100, "C")]
    for count, k, order in some(shapes, 2):  # the longest rows are those of several warps
        x = rows_of_all_kinds(count, k, dtype)
        wide = x.astype(np.float64)
        finite = np.isfinite(wide).all(axis=1)
        clean = np.where(finite[:, None], wide, 0)
        limit, largest = splitter.limit(k), abs(clean).max(axis=1)
        scale = scales(clean, largest, limit)
        whole = [[round_to(v, int(s)) for v in row] for row, s in zip(clean, scale, strict=True)]
        a = np.asarray(x, order=order).view(HostArray)  # type: ignore[call-overload]
        packed = packed_residues.pack(by_rows(a), splitter, "left", 0)
        place = packed.layout
        np.testing.assert_array_equal(seen(packed.scales, (count,), np.int32), scale)
        flags = seen(packed.flags, (count,), np.uint8)
        np.testing.assert_array_equal(flags == NONFINITE, ~finite)
        top = 1024 if dtype == "float64" else 128
        exponent = 2 * np.frexp(largest)[1]
        assert (flags[finite & (exponent + np.log2(k) >= top)] == LARGE).all()
        assert not flags[finite & (exponent < top - 20)].any()
        found = residues_of(packed.slices, place.steps, place.count, place.rows8)
        assert not found[:, :count, k:].any()
        for p, one in zip(splitter.moduli, found, strict=True):
            wanted = [[(v + p // 2) % p - p // 2 for v in row] for row in whole]
            np.testing.assert_array_equal(one[:count, :k], wanted)


def test_rows_that_shared_memory_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the residues, scales, flags and records of the kernels for any strides."""
    monkeypatch.setattr(packed_residues, "shared_memory", lambda device: 34 * 1024)  # 4096 entries
    splitter, count, k = emulation_of("crt14").left, packed_residues.MANY_ROWS, 4200
    assert isinstance(splitter, Residues)
    found = []
    for x in (rows_of_all_kinds(count, k, "float64"), np.ones((count, k))):
        for order in "CF":
            record = np.full(RECORD // 8, NOTHING)
            one = by_rows(np.asarray(x, order=order).view(HostArray))  # type: ignore[call-overload]
            packed = packed_residues.pack(one, splitter, "left", 0, record.ctypes.data)
            how = packed_residues.prepare(one.form, splitter, "left", 0, recorded=True)
            assert len(how.kernels) == (1 if order == "C" else 3)
            place = packed.layout
            residues = residues_of(packed.slices, place.steps, place.count, place.rows8)[:, :count]
            scales = seen(packed.scales, (count,), np.int32)
            flags = seen(packed.flags, (count,), np.uint8)
            found.append([x.tobytes() for x in (residues, scales, flags, record)])
    assert found[0] == found[1]
    assert found[2] == found[3] != found[0]


@pytest.mark.parametrize("family", ["log-normal 1", "sparse 1 %", "subnormal", "difficult"])
def test_what_is_recorded_of_rows_is_what_the_reference_finds(family: str) -> None:
    for count, k, order in [(19, 200, "C"), (40, 13, "F"), (14, 300, "F")]:
        if family == "difficult":
            x = rows_of_all_kinds(count, k, "float64")
            x = x[np.isfinite(x).all(axis=1)]
        else:
            x = ALL[family](np.random.default_rng(k), count, k, 3)[0]
            x[:, 0] += 1e-300  # no row of zeros
        for part in (x, *x):  # and each row alone
            rows = np.asarray(np.atleast_2d(part), order=order)  # type: ignore[call-overload]
            assert recorded(rows) == meant.rows_of(rows)
    x[3, 7] = np.inf
    assert recorded(np.asarray(x, order="C")) == recorded(np.asarray(x, order="F")) == UNFIT
    assert recorded(np.zeros((3, 70))) == NONE


@pytest.mark.parametrize("orders", ["CF", "FC"])
@pytest.mark.parametrize("family", ["log-normal 1", "difficult", "bytes"])
def test_a_look_records_rows_as_packing_records_them(
    family: str, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_residues, "least_density", lambda count: -1.0)  # it never ends
    splitter = emulation_of("crt14").left
    assert isinstance(splitter, Residues)
    for m, n, k, most in [(19, 30, 200, 99), (14, 15, 700, 99), (33, 14, 13, 8), (3, 1, 13, 99)]:
        sides = []
        for count, order in zip((m, n), orders, strict=True):
            rng = np.random.default_rng(count)
            if family == "difficult" and count >= 14:
                x = rows_of_all_kinds(count, k, "float64")
            elif family == "bytes":
                x = rng.integers(0, 255, (count, k), endpoint=True).astype(float)
            else:
                x = ALL["log-normal 1"](rng, count, k, 3)[0]
            sides.append(np.asarray(x, order=order))  # type: ignore[call-overload]
        found = looked_at(sides[0], sides[1], most)
        for x, one in zip(sides, found, strict=True):
            panels, blocks = -(-len(x) // 4), -(-min(len(x), most) // 4)
            first = [i * (panels - 1) // max(blocks - 1, 1) * 4 for i in range(blocks)]
            rows = [row for i in first for row in range(i, min(i + 4, len(x)))]
            np.testing.assert_array_equal(one, record_of(x[rows], splitter))


def test_a_look_ends_where_no_moduli_are_enough() -> None:
    x = np.ones((400, 13))
    x[0, 1:] = 1e-9
    x[300] = np.nan
    for other, ends in ((x[:40], True), (np.ones((40, 13)), False)):
        found = Rows.of(looked_at(x, other, 1000)[0])
        assert (found != UNFIT) == ends


def test_a_look_at_a_stack_and_at_other_types() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((3, 5, 40)), rng.standard_normal((40, 7)).astype(np.float32)
    found = np.full((2, RECORD // 8), NOTHING)
    addresses = found[0].ctypes.data, found[1].ctypes.data
    a, b = by_rows(x.view(HostArray)), by_columns(y.view(HostArray))
    packed_residues.look(a, b, addresses, 0, 100)
    assert Rows.of(found[0]) == meant.rows_of(x.reshape(15, 40))
    assert Rows.of(found[1]) == meant.rows_of(y.T)
    for order in "CF":
        x, y = (np.asarray(complex_rows(n, 40), order=order) for n in (5, 7))  # type: ignore[call-overload]
        found = looked_at(x, y, 100)
        assert [Rows.of(record) for record in found] == [meant.rows_of(v) for v in (x, y)]
        assert (found[:, 4:] == 0).all()  # not taken for integers


def looked_at(x: Any, y: Any, most: int) -> Any:
    """The records of two operands (rows, k)."""
    found = np.full((2, RECORD // 8), NOTHING)
    addresses = found[0].ctypes.data, found[1].ctypes.data
    a, b = (by_rows(v.view(HostArray)) for v in (x, y))
    packed_residues.look(a, b, addresses, 0, most)
    return found


def recorded(x: Any) -> Rows:
    splitter = emulation_of("crt14").left
    assert isinstance(splitter, Residues)
    return Rows.of(record_of(x, splitter))


def record_of(x: Any, splitter: Residues) -> Any:
    record = np.full(RECORD // 8, NOTHING)
    packed_residues.pack(by_rows(x.view(HostArray)), splitter, "left", 0, record.ctypes.data)
    return record


@pytest.mark.parametrize("count", some([14, 15, 16], 2))
def test_the_product_is_not_made_where_moduli_are_too_few(count: int) -> None:
    rng = np.random.default_rng(count)
    scheme = emulation_of(f"crt{count}")
    made = []
    for family in ("normal", "log-normal 1", "sparse 1 %", "nan"):
        a, b = ALL["normal" if family == "nan" else family](rng, 24, 1000, 12)
        a[3, 7] = np.nan if family == "nan" else a[3, 7]
        needed = moduli_for(meant.rows_of(a), meant.rows_of(b.T))
        records, answer = np.full((2, RECORD // 8), NOTHING), np.full(1, 7, np.int32)
        addresses = records[0].ctypes.data, records[1].ctypes.data
        x, y = (v.view(HostArray) for v in (a, b))
        left, right = pack(by_rows(x), by_columns(y), scheme, records=addresses)
        seen_by_host = np.zeros((2, RECORD // 8))
        packed_residues.judge(count, addresses, answer.ctypes.data, seen_by_host.ctypes.data, 0)
        np.testing.assert_array_equal(seen_by_host, records)
        made.append(needed is not None and needed <= count)
        assert answer[0] == made[-1]
        out = np.full((24, 12), np.nan).view(HostArray)
        gemm(left, right, scheme, out, gate=(answer.ctypes.data, 1))
        wanted = meant.execute(meant.pack(a, b, scheme), out.dtype) if made[-1] else np.nan
        np.testing.assert_array_equal(out, np.broadcast_to(wanted, out.shape))
    assert made == [True, count > 14, False, False]


INTEGERS = {
    "0/1": (0, 1),
    "[0, 255]": (0, 255),
    "signed bytes": (-128, 127),
    "both kinds of bytes": (-1, 255),
    "±30,000": (-30_000, 30_000),
    "all of two digits": (-32_896, 32_639),
    "16 bits": (0, 65_535),
    "±2^21": (1 - 2**21, 2**21 - 1),
}


# Compute capability, bytes of shared memory that a block may have, multiprocessors: of blocks that
# make several parts each, from a ring of four stages, and of such as make one, from three.
PORTABLE_CHIPS = {"A100": ("80", 163 * 1024, 3), "Ada": ("89", 99 * 1024, 128)}


@pytest.mark.parametrize(
    ("kind", "other", "chip"),
    [
        ("±30,000", "all of two digits", "Ada"),
        ("16 bits", "signed bytes", "Ada"),
        *some(
            [
                ("[0, 255]", "signed bytes", None),
                ("both kinds of bytes", "±2^21", None),
                ("0/1", "[0, 255]", None),
                ("±30,000", "±30,000", None),
                ("all of two digits", "16 bits", None),
                ("[0, 255]", "all of two digits", None),
                ("16 bits", "signed bytes", None),
                ("both kinds of bytes", "both kinds of bytes", None),
            ],
            4,
        ),
    ],
)
@pytest.mark.parametrize("dtype", TYPES)
def test_products_of_integers_are_exact(
    kind: str, other: str, chip: str | None, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if chip is not None:
        monkeypatch.setitem(sys.modules, "cupy", on_a(*PORTABLE_CHIPS[chip]))
    rng = np.random.default_rng(len(kind))
    for m, k, n, orders in ((70, 65, 45, "CC"), (13, 65, 200, "FF"), (3, 300, 5, "FC")):
        wide = [rng.integers(*INTEGERS[kind], (m, k), endpoint=True)]
        wide.append(rng.integers(*INTEGERS[other], (k, n), endpoint=True))
        wide[0][0, :2] = INTEGERS[kind]
        wide[1][:2, 0] = INTEGERS[other]
        x, y = (np.asarray(v.astype(dtype), order=o) for v, o in zip(wide, orders, strict=True))
        first = emulation_of("crt14").left
        assert isinstance(first, Residues)
        bounds = [Bounds.of(record_of(v, first)[4:]) for v in (x, y.T)]
        assert bounds == [(min(v.min(), 0), max(v.max(), 0)) for v in wide]
        scheme = scheme_for(*bounds, k)
        assert scheme is not None
        records = np.full((2, RECORD // 8), NOTHING)
        a, b = by_rows(x.view(HostArray)), by_columns(y.view(HostArray))
        addresses = tuple(record.ctypes.data for record in records)
        left, right = pack(a, b, scheme, records=addresses)
        assert [Bounds.of(record[4:]) for record in records] == bounds
        out = np.full((m, n + 3), np.nan, dtype)[:, :n].view(HostArray)
        gemm(left, right, scheme, out)
        exact = wide[0].astype(object) @ wide[1].astype(object)
        np.testing.assert_array_equal(out, exact.astype(np.float64).astype(dtype))


@pytest.mark.parametrize("wrong", [0.5, -(2.0**30), 1e300, 5e-324, np.nan, np.inf, 2.0**31 + 0.5])
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_is_no_integer_is_recorded(wrong: float, order: Any) -> None:
    made = scheme_for(Bounds(0, 1), Bounds(0, 1), 300)
    assert made is not None
    assert isinstance(made.left, Integers)
    splitters = made.left, emulation_of("crt14").left
    for place, splitter in some(product([(0, 0), (17, 100), (39, 299)], splitters), 5):
        x = np.ones((40, 300))
        x[place] = wrong
        assert isinstance(splitter, Residues)
        assert Bounds.of(record_of(np.asarray(x, order=order), splitter)[4:]) is None


BYTES, SIGNED, DIGITS = Bounds(0, 255), Bounds(-128, 127), Bounds(-32_896, 32_639)
LARGE_INTEGERS, WORDS = Bounds(-30_000, 30_000), Bounds(0, 65_535)


@pytest.mark.parametrize(
    ("left", "right", "count", "others"),
    [
        (BYTES, BYTES, 1, [(BYTES, Bounds(0, 200), True), (SIGNED, BYTES, False)]),
        (BYTES, LARGE_INTEGERS, 2, [(BYTES, DIGITS, True)]),
        (WORDS, SIGNED, 2, []),
        (
            LARGE_INTEGERS,
            DIGITS,
            4,
            [(SIGNED, Bounds(-1, 255), True), (Bounds(-32_897, 0), SIGNED, False)],
        ),
        (Bounds(0, 32_640), Bounds(0, 1), 2, []),
        (Bounds(-1, 32_640), Bounds(0, 1), 4, [(SIGNED, WORDS, False)]),
        (
            Bounds(-32_897, 0),
            LARGE_INTEGERS,
            6,
            [(SIGNED, BYTES, True), (LARGE_INTEGERS, Bounds(-(2.0**20), 0), False)],
        ),
    ],
)
def test_integers_that_a_scheme_holds(left: Bounds, right: Bounds, count: int, others: Any) -> None:
    """count: its INT8 products. others: bounds, and whether it makes their product exactly."""
    made = scheme_for(left, right, 8192)
    assert made is not None
    assert made.products == count
    for x, y, is_held in [(left, right, True), *others]:
        assert is_exact(made, x, y, 8192) == is_held
    if count == 1:
        assert not is_exact(made, left, right, 4 * 8192 + 300)
    assert scheme_for(left, None, 8192) is None
    assert scheme_for(*[Bounds(-(2.0**29), 2.0**29)] * 2, 1 << 46) is None


def round_to(number: float, scale: int) -> int:
    """RN(number · 2^scale), to nearest even."""
    numerator, denominator = number.as_integer_ratio()
    numerator <<= max(scale, 0)
    denominator <<= max(-scale, 0)
    whole, rest = divmod(numerator, denominator)
    return whole + (2 * rest > denominator or (2 * rest == denominator and whole % 2 == 1))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", SCHEMES)
def test_products_are_those_of_the_reference(name: str, dtype: str) -> None:
    x, y = rows_of_all_kinds(70, 77, dtype), rows_of_all_kinds(45, 77, dtype)
    a, b = x.view(HostArray), np.ascontiguousarray(y.T).view(HostArray)
    out = np.full((70, 48), np.nan, dtype)[:, :45].view(HostArray)
    multiply(a, b, name, out)
    with np.errstate(all="ignore"):
        wanted = meant.execute(meant.pack(x, y.T, emulation_of(name)), out.dtype)
    np.testing.assert_array_equal(out, wanted)  # zeros where an entry is not finite


@pytest.mark.parametrize("chip", PORTABLE_CHIPS)
def test_the_portable_kernel_has_the_bits_of_the_reference(
    chip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", on_a(*PORTABLE_CHIPS[chip]))
    rng = np.random.default_rng(0)
    for m, k, n in some([(70, 77, 45), (300, 200, 230), (1, 1, 1)], 2):
        x, y = rng.standard_normal((m, k)), rng.standard_normal((n, k))
        out = np.full((m, n + 3), np.nan)[:, :n].view(HostArray)
        multiply(x.view(HostArray), y.view(HostArray).T, "crt7", out)
        wanted = reference.multiply(x, y.T, emulation_of("crt7")).value
        np.testing.assert_array_equal(out, wanted)


@pytest.fixture
def run_on(
    compiled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str | None], None]:
    """Products by kernels for the host, Hopper's GEMM among them: as on one of PORTABLE_CHIPS, or
    on Hopper (None).
    """

    def cuda_kernel(file: str, name: str, definitions: Any, shared: int = 0) -> Any:
        if file != products.WGMMA.file:
            return compiled(file, name, definitions, shared)
        given = ("ALL_ARRIVE", 1), *definitions
        return kernels(file, given, tmp_path / "wgmma.so", "-O2")[name]

    def run_on(chip: str | None) -> None:
        monkeypatch.setattr(products, "cuda_kernel", cuda_kernel)
        if chip is not None:
            monkeypatch.setitem(sys.modules, "cupy", on_a(*PORTABLE_CHIPS[chip]))

    return run_on


@pytest.mark.parametrize("chip", [None, "Ada"])
@pytest.mark.parametrize("bounds", [None, Bounds(-128, 127)], ids=["residues", "digits"])
def test_half_of_a_symmetric_product_is_made_and_mirrored(
    bounds: Bounds | None,
    chip: str | None,
    run_on: Callable[[str | None], None],
) -> None:
    """The bits of the product of two arrays, from one packed operand."""
    run_on(chip)
    rng, n = np.random.default_rng(0), 400
    made, x = emulation_of("crt7"), rng.standard_normal((n, 20))
    if bounds is not None:
        found = scheme_for(bounds, bounds, 4096)
        assert found is not None
        made, x = found, rng.integers(*map(int, bounds), x.shape).astype(x.dtype)
    records = np.full((2, RECORD // 8), NOTHING)
    addresses = records[0].ctypes.data, records[1].ctypes.data
    values = []
    for y in (x.T.copy(), x.T):
        a, b = by_rows(x.view(HostArray)), by_columns(y.view(HostArray))
        left, right = pack(a, b, made, records=addresses)
        assert (left is right) == (y.base is x)
        values.append(np.full((n, n + 3), np.nan)[:, :n].view(HostArray))
        gemm(left, right, made, values[-1])
    np.testing.assert_array_equal(*values)


@pytest.mark.parametrize(
    ("chip", "dtype", "hermitian"),
    [
        (None, "complex128", True),
        (None, "complex64", False),
        ("Ada", "complex64", True),
        ("Ada", "complex128", False),
    ],
)
def test_half_of_a_complex_product_with_ones_own_transpose_is_made(
    chip: str | None,
    dtype: str,
    hermitian: bool,
    run_on: Callable[[str | None], None],
) -> None:
    run_on(chip)
    scheme, n = emulation_of("crt7"), 270
    x = np.random.default_rng(0).standard_normal((n, 8)).view("D").astype(dtype)
    x[n // 2] *= 2.0**-140  # whose square is subnormal in complex64
    y = x.conj() if hermitian else x.copy()
    others = (y, BEST), ((y if hermitian else x), KernelChoice(hermitian=hermitian))
    values = []
    for width, (other, choice) in zip((n, n + 3), others, strict=True):
        a, b = by_rows(x.view(HostArray)), by_columns(other.T.view(HostArray))
        left, right = pack(a, b, scheme)
        assert (left is right) == (other is x)
        values.append(np.full((n, width), np.nan, dtype)[:, :n].view(HostArray))
        gemm(left, right, scheme, values[-1], choice=choice)
    np.testing.assert_array_equal(*values)
    np.testing.assert_allclose(values[0], x @ y.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chip", [None, "Ada"])
def test_complex_products_have_the_bits_of_two_real_ones(
    chip: str | None, run_on: Callable[[str | None], None]
) -> None:
    """Of any layout and type, and of more steps than a segment."""
    run_on(chip)
    scheme = emulation_of("crt14")
    shapes = [(70, 77, 45, "CF"), (270, 20, 200, "FC"), (3, 70, 4, "CC")]
    for m, k, n, orders in some(shapes, 2):
        x, y = (complex_rows(*shape) for shape in ((m, k), (n, k)))
        records = np.full((2, RECORD // 8), NOTHING)
        addresses = records[0].ctypes.data, records[1].ctypes.data
        a = np.asarray(x, order=orders[0]).view(HostArray)  # type: ignore[call-overload]
        b = np.asarray(y.T, order=orders[1]).view(HostArray)  # type: ignore[call-overload]
        left, right = pack(by_rows(a), by_columns(b), scheme, records=addresses)
        joined = np.concatenate([x.real, x.imag], 1), np.concatenate([y.real, y.imag], 1)
        assert [Rows.of(record) for record in records] == [meant.rows_of(v) for v in joined]
        place = np.full((m, n + 1), np.nan, complex).view(HostArray)
        out = place[:, :n]
        gemm(left, right, scheme, out)
        re = reference.multiply(np.concatenate([x.real, -x.imag], 1), joined[1].T, scheme)
        other = np.concatenate([y.imag, y.real], 1)
        im = reference.multiply(joined[0], other.T, scheme)
        np.testing.assert_array_equal(out.real, re.value)
        np.testing.assert_array_equal(out.imag, im.value)
        assert np.isnan(place[:, n]).all()


def complex_rows(count: int, k: int) -> Any:
    rng = np.random.default_rng(k)
    x = rng.standard_normal((count, k)) + 1j * rng.standard_normal((count, k))
    x[0] *= 2.0**-1000
    x[1] = x[1].real * 2.0**900
    x[2, k // 2 :] *= 1e-5j
    return x


def multiply(a: Any, b: Any, name: str, out: Any) -> None:
    scheme = emulation_of(name)
    left, right = pack(by_rows(a), by_columns(b), scheme)
    gemm(left, right, scheme, out)


@pytest.mark.parametrize("left", [(-128, 127), (0, 255), (-32_896, 32_639), (0, 65_535)])
@pytest.mark.parametrize("right", [(-128, 127), (-32_896, 32_639), (0, 65_535)])
def test_sums_of_digits_fit_up_to_the_longest_product(left: Any, right: Any) -> None:
    """By the worst entries, in exact integers; and K is not refused much too early."""
    bounds = Bounds(*left), Bounds(*right)
    k = max(
        k
        for k in range(1 << 10, 1 << 18, 1 << 8)
        if (made := scheme_for(*bounds, k)) is not None and digits_of(made) is not None
    )
    made = scheme_for(*bounds, k)
    assert made is not None
    largest = 0
    for a, b in product(left, right):  # whole rows of one entry
        for x, y in product(digits(a, *left), digits(b, *right)):
            sums = [0] * (len(x) + len(y) - 1)
            for i, j in product(range(len(x)), range(len(y))):
                sums[i + j] += k * x[i] * y[j]
            for order, total in enumerate(sums):
                sums[order] = total + (sums[order - 1] >> 8 if order else 0)
            largest = max(largest, *map(abs, sums))
    assert 1 << 29 < largest < 1 << 31


def digits(number: int, least: int, most: int) -> list[list[int]]:
    """Of an entry, and of those whose lower digit is as large as it may be."""
    low = (-128, 127) if least < 0 else (0, 255)
    if low[0] <= least and most <= low[1]:
        return [[number]]
    high = (number + (128 if least < 0 else 0)) >> 8
    return [[lower, high] for lower in low]
