"""Packing and results of residue schemes: the CUDA kernels, run on the host, and around products in
exact integers, against the reference backend.
"""

import ctypes
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.gpu import residues as products
from mixpert_py.runtime.gpu.gemm import gemm
from mixpert_py.runtime.kernels.abi import LARGE, NONFINITE, STEP
from mixpert_py.runtime.kernels.compile import source_text
from mixpert_py.runtime.packing import by_columns, by_rows, pack
from mixpert_py.runtime.packing import residues as packed_residues
from mixpert_py.runtime.packing.residues import TILE
from mixpert_py.runtime.reference import reference
from mixpert_py.runtime.reference import residues as meant
from mixpert_py.runtime.reference.residues import scales
from mixpert_py.runtime.schemes import emulation_of
from mixpert_py.runtime.schemes.crt import NONE, NOTHING, UNFIT, Rows
from mixpert_py.runtime.schemes.residues import MODULI
from mixpert_py.runtime.splitter import Residues
from tests.every_check import EVERY_CHECK, some
from tests.runtime.families import EVERYDAY, FAMILIES
from tests.runtime.kernels_on_host.host import (
    HostArray,
    HostKernel,
    Memory,
    kernels,
    library,
    seen,
)

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")

SCHEMES = ("crt14", "crt8", "crt16") if EVERY_CHECK else ("crt14",)
ALL = {**FAMILIES, **EVERYDAY}
TYPES = ("float64", "float32") if EVERY_CHECK else ("float64",)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """`cuda_kernel`, for the host."""
    folder: Path = tmp_path_factory.mktemp("kernels")
    made: dict[Any, dict[str, HostKernel]] = {}

    def cuda_kernel(file: str, name: str, definitions: Any, shared: int = 0) -> Any:
        if file == products.GEMM:
            return ExactProducts(definitions)
        key = file, definitions
        if key not in made:
            made[key] = kernels(file, definitions, folder / f"{len(made)}.so")
        return made[key][name]

    return cuda_kernel


@pytest.fixture(autouse=True)
def on_host(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (packed_residues, products):
        monkeypatch.setattr(module, "cuda_kernel", compiled)
        monkeypatch.setattr(module, "allocate", lambda size, stream: Memory(size))

    def prepare(moduli: tuple[int, ...], result: str, device: int) -> products.Kernels:
        return products.Kernels(
            compiled(products.GEMM, "residue_gemm", products.of_gemm(moduli)),
            compiled(products.RESULT, "result", products.of_result(moduli, result)),
            132,
        )

    monkeypatch.setattr(products, "prepare", prepare)
    packed_residues.prepare.cache_clear()
    yield
    packed_residues.prepare.cache_clear()


class ExactProducts:
    """The GEMM, in exact integers."""

    def __init__(self, definitions: tuple[tuple[str, Any], ...]) -> None:
        self._moduli = [int(p) for p in dict(definitions)["MODULI"].split(", ")]

    def launch_words(self, grid: int, block: int, words: Any, shared: int, stream: object) -> None:
        a, b, out, steps, rows, columns, _ = words
        count = len(self._moduli)
        left = residues_of(a, steps, count, rows * TILE["left"])
        right = residues_of(b, steps, count, columns * TILE["right"])
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
    swizzled = seen(address, (steps, count, rows, 4, 16), np.int8)
    found = np.empty_like(swizzled)
    for row in range(8):
        for chunk in range(4):
            found[:, :, row::8, chunk] = swizzled[:, :, row::8, chunk ^ (row >> 1 & 3)]
    return found.transpose(1, 2, 0, 3, 4).reshape(count, rows, steps * STEP)


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
    for count, k, order in some([(19, 200, "C"), (40, 13, "F"), (14, 300, "F"), (15, 64, "C")], 2):
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


def recorded(x: Any) -> Rows:
    splitter = emulation_of("crt14").left
    assert isinstance(splitter, Residues)
    record = np.full(4, NOTHING)
    packed_residues.pack(by_rows(x.view(HostArray)), splitter, "left", 0, record.ctypes.data)
    return Rows.of(record)


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


def test_stacks_and_tiles_that_are_not_whole() -> None:
    rng = np.random.default_rng(0)
    x, b = rng.standard_normal((2, 260, 30)), rng.standard_normal((30, 20))
    out = np.full((2, 260, 20), np.nan).view(HostArray)
    multiply(x.view(HostArray), b.view(HostArray), "crt14", out)
    for one, value in zip(x, out, strict=True):
        wanted = reference.multiply(one, b, emulation_of("crt14")).value
        np.testing.assert_array_equal(value, wanted)


def multiply(a: Any, b: Any, name: str, out: Any) -> None:
    scheme = emulation_of(name)
    left, right = pack(by_rows(a), by_columns(b), scheme)
    gemm(left, right, scheme, out)


REDUCTION = """
extern "C" long wrong(int index) {
    const int p = moduli[index], half = p / 2;
    const Reduction reduced(index);
    const long most = p == 256 ? 1l << 31 : 1l << 30;
    auto differs = [=](long sum) {
        const long wanted = ((sum + half) % p + p) % p;
        return reduced((int)sum) != (unsigned)wanted;
    };
    long count = differs(most - 1) + differs(-most) + differs(most - 2) + differs(1 - most);
    for (long sum = -(most / p) * p - half; sum + 1 < most; sum += p)
        if (sum > -most) count += differs(sum - 1) + differs(sum);
    return count;
}
"""


def test_sums_are_reduced_where_quotients_change(tmp_path: Path) -> None:
    """In the GEMM, at every multiple of a modulus that an INT32 sum of a segment comes past."""
    source = source_text(products.GEMM, products.of_gemm(MODULI))
    struct = re.search(r"struct Reduction \{.*?\n\};", source, re.DOTALL)
    assert struct is not None
    text = f"typedef unsigned u32;\nstatic const unsigned short moduli[] = {{{listed(MODULI)}}};\n"
    wrong = library(text + struct[0] + REDUCTION, tmp_path / "reduction.so", "-O2").wrong
    wrong.restype = ctypes.c_long
    assert not any(wrong(index) for index in some(range(len(MODULI)), 9))


def listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))
