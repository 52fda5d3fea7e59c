"""What Python and CUDA share: layouts, codes and masks, each compared with what does not use it."""

import ctypes
import math
import re
import shutil
import struct
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.gpu import gemm
from mixpert_py.runtime.kernels import abi
from mixpert_py.runtime.kernels.abi import HEADERS, OPERAND, PROBLEM, SMALL, SOURCE, Structure
from mixpert_py.runtime.kernels.compile import source_text
from mixpert_py.runtime.model.tile import HOPPER, PORTABLE, Chip, Depth, Family, candidates
from mixpert_py.runtime.packing.operand import layout
from mixpert_py.runtime.reference import digits
from mixpert_py.runtime.splitter import Digits
from tests.runtime.emulations import EMULATIONS

STRUCTURES = [OPERAND, PROBLEM, SOURCE, SMALL]
COMPILER = shutil.which("g++") or shutil.which("clang++")
TYPES = {"int": ctypes.c_int, "long long": ctypes.c_longlong, "double": ctypes.c_double}
# What the kernels mean by each, written out here once more.
CONSTANTS = {
    "ELEMENT_INT8": 0,
    "ELEMENT_FLOAT16": 1,
    "ELEMENT_BFLOAT16": 2,
    "ELEMENT_TF32": 3,
    "STEP": 64,
    "SIGNIFICAND_BITS": 9,
    "SIGNIFICAND_MASK": 0b1_1111_1111,
    "WHOLE_LOG": 8,
    "WHOLE": 256,
    "FIRST_DIGIT": 15,
    "NONFINITE": 0b001,
    "OUTLIER": 0b010,
    "LARGE": 0b100,
    "LEAVES": 0b011,
    "FIT": 257.25,
}


def offsets(structure: Structure) -> list[tuple[str, int]]:
    """The path and offset of every value, as NumPy has them."""
    found = []
    for path in structure.leaves:
        kind: np.dtype[Any] = structure.dtype
        at = 0
        for name, index in re.findall(r"(\w+)(?:\[(\d+)\])?", path):
            assert kind.fields is not None
            member, offset = kind.fields[name][:2]
            at += offset
            if index:
                assert member.subdtype is not None
                member = member.subdtype[0]
                at += int(index) * member.itemsize
            kind = member
        found.append((path, at))
    return found


def as_ctypes(structure: Structure) -> Any:
    """The structure as C lays it out, by `ctypes`."""

    def member(kind: str | Structure) -> Any:
        if isinstance(kind, Structure):
            return as_ctypes(kind)
        return ctypes.c_void_p if kind.endswith("*") else TYPES[kind]

    members = [
        (one.name, member(one.type) * one.length if one.length else member(one.type))
        for one in structure.fields
    ]
    return type(structure.name, (ctypes.Structure,), {"_fields_": members})


@pytest.mark.parametrize("structure", STRUCTURES, ids=["operand", "problem", "source", "small"])
def test_numpy_and_struct_lay_structures_out_as_c_does(structure: Structure) -> None:
    in_c = as_ctypes(structure)
    assert structure.dtype.itemsize == ctypes.sizeof(in_c) == struct.calcsize(structure.format)
    names = structure.dtype.names
    assert names is not None
    assert structure.dtype.fields is not None
    for name in names:
        assert structure.dtype.fields[name][1] == getattr(in_c, name).offset
    values = list(range(1, 1 + len(structure.leaves)))
    packed = struct.pack(structure.format, *values)
    for (_, offset), value in zip(offsets(structure), values, strict=True):
        assert value in (packed[offset], struct.unpack_from("d", packed + bytes(8), offset)[0])


def test_the_generated_header_says_the_same_to_a_compiler(tmp_path: Path) -> None:
    if COMPILER is None:
        pytest.skip("no C++ compiler")
    checks = [
        f"static_assert({name} == {value}, {name!r});".replace("'", '"')
        for name, value in CONSTANTS.items()
    ]
    names = ["shared_problem.cuh", "shared_small_problem.cuh"]
    text = "#include <cstddef>\n" + HEADERS["shared_constants.cuh"]
    for header, (inner, outer) in zip(names, [(OPERAND, PROBLEM), (SOURCE, SMALL)], strict=True):
        space = header.removesuffix(".cuh")
        text += f"namespace {space} {{\n{HEADERS[header]}}}\n"
        for one in (inner, outer):
            whole = f"{space}::{one.name}"
            checks.append(f"static_assert(sizeof({whole}) == {one.dtype.itemsize});")
            checks += [
                f"static_assert(offsetof({whole}, {path}) == {offset});"
                for path, offset in offsets(one)
            ]
    source = tmp_path / "header.cpp"
    source.write_text(text + "\n".join(checks) + "\n", encoding="utf-8")
    done = subprocess.run(
        [COMPILER, "-std=c++17", "-fsyntax-only", "-Winvalid-offsetof", str(source)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_the_generated_header_has_the_constants_that_kernels_mean() -> None:
    text = HEADERS["shared_constants.cuh"]
    stated = r"(?:#define|constexpr int|constexpr float) (\w+)(?: =)? (\S+?)f?;?\n"
    found = dict(re.findall(stated, text.replace("#define SHARED_CONSTANTS\n", "")))
    assert {name: float(value) for name, value in found.items()} == CONSTANTS


@pytest.mark.parametrize("file", ["gemm_sm80.cu", "gemm_sm90.cu", "guard.cu"])
def test_kernels_take_shared_facts_from_the_header(file: str) -> None:
    text = source_text(file, ())
    assert text.count("#define SHARED_CONSTANTS") >= 1
    own = text
    for header in HEADERS.values():
        own = own.replace(header, "")
    own = re.sub(r"//.*", "", own)
    assert not re.search(r"ELEMENT\s*[!=]=\s*\d|\b511\b|257\.25|[<>]{2}\s*9\b", own)
    assert not re.search(r"\b(NONFINITE|OUTLIER|LARGE|LEAVES|STEP|FIT|WHOLE)\s*=[^=]", own)
    assert "struct Problem" not in own


def test_the_gemm_puts_every_value_where_its_name_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch fills the structure in order: each of its values is looked up by name."""
    place = SimpleNamespace(
        slices_stride=11, scales_stride=12, batch=7, rows=13, rows8=16, steps=17, blocks=1,
        steps_per_block=17,
    )  # fmt: skip
    other = SimpleNamespace(**{**vars(place), "slices_stride": 21, "scales_stride": 22})
    other.rows, other.rows8 = 23, 24
    launched: list[bytes] = []

    class Kernel:
        def launch(self, grid: int, block: int, signature: Any, values: Any, *more: int) -> None:
            whole = signature.format.pack(*([0] * 10), *values)
            launched.append(whole[len(whole) - signature.size :])

    cut = SimpleNamespace(grid=1, tail=31, split=32)
    times = SimpleNamespace(chip=SimpleNamespace(family=HOPPER))
    tile = SimpleNamespace(shared=0)
    monkeypatch.setattr(gemm, "kernel_times", lambda device, family: times)
    monkeypatch.setattr(gemm, "_cut", lambda *_: (tile, cut, 1))
    monkeypatch.setattr(gemm, "constants", lambda *_, **__: ())
    monkeypatch.setattr(gemm, "cuda_kernel", lambda *_: Kernel())
    monkeypatch.setattr(gemm, "_zeros", lambda *_: SimpleNamespace(ptr=91))
    gemm._prepared.cache_clear()

    def array(ptr: int, strides: tuple[int, ...]) -> Any:
        memory = SimpleNamespace(ptr=ptr, device_id=0)
        return SimpleNamespace(data=memory, shape=(7, 13, 23), strides=strides, itemsize=4)

    gemm.gemm(
        SimpleNamespace(slices=1, scales=2, layout=_Sizes(place)),
        SimpleNamespace(slices=3, scales=4, layout=_Sizes(other)),
        EMULATIONS["int8x6"],
        array(5, (4 * 41, 4 * 42, 4)),
        gate=(92, 93),
    )
    gemm._prepared.cache_clear()
    [found] = np.frombuffer(launched[0], PROBLEM.dtype)
    for name, sizes, slices in (("a", place, 1), ("b", other, 3)):
        operand = found[name]
        assert (operand["slices"], operand["scales"]) == (slices, slices + 1)
        for field in ("slices_stride", "scales_stride", "rows", "rows8"):
            assert operand[field] == getattr(sizes, field), field
    rest = {
        "c": 5, "c_in": 0, "c_stride": 41, "c_in_stride": 0, "c_leading": 42, "c_in_leading": 0,
        "alpha": 1.0, "beta": 0.0, "batch": 7, "steps": 17, "blocks": 1, "steps_per_block": 17,
        "segment_steps": 508, "group": gemm.GROUP, "parts": 91, "tail": 31, "split": 32, "gate": 92,
        "open": 93,
    }  # fmt: skip
    assert {name: found[name] for name in rest} == rest
    assert set(found.dtype.names) == {*rest, "a", "b"}


class _Sizes:
    """A packed operand's sizes, to be compared by identity as `gemm` asks."""

    def __init__(self, sizes: SimpleNamespace) -> None:
        self.__dict__.update(vars(sizes))


@pytest.mark.parametrize(
    ("name", "ptx", "size"),
    [
        ("int8", ".s32.s8.s8", 1),
        ("float16", ".f32.f16.f16", 2),
        ("bfloat16", ".f32.bf16.bf16", 2),
        ("tf32", ".f32.tf32.tf32", 4),
    ],
)
@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("wgmma.cuh", r'#define KIND "(\S+)"'),
        ("gemm_sm80.cu", r'#define MMA "mma\.sync\.aligned\.m16n8(\S+)\.row\.col(\S+)"'),
    ],
)
def test_an_element_selects_its_own_instruction(
    name: str, ptx: str, size: int, file: str, pattern: str, tmp_path: Path
) -> None:
    """A kernel that is compiled for an element multiplies elements of that type and size."""
    preprocessor = shutil.which("cpp") or shutil.which("gcc")
    if preprocessor is None:
        pytest.skip("no C preprocessor")
    scheme = next(it for it in EMULATIONS.values() if it.element.name == name)
    tile = candidates(scheme, Depth(64, 1, 64), wide=False, chip=Chip(HOPPER, 132, 227 * 1024))[-1]
    definitions = dict(gemm.constants(scheme, tile, wide=False, steps_per_block=64))
    source = tmp_path / "kernel.cu"
    text = source_text(file, (("ELEMENT", definitions["ELEMENT"]), ("TILE_N", 64)))
    source.write_text(re.sub(r"#include .*", "", text), encoding="utf-8")
    command = [preprocessor, "-E", "-dM", "-x", "c++", str(source)]
    macros = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(pattern, macros)
    assert found is not None
    instruction = "".join(found.groups())
    assert instruction.startswith(f"k{32 // size}")
    assert ptx in instruction
    assert abi.ELEMENTS[name].size == size


def test_scale_words_hold_every_unit() -> None:
    """g lies between 129 and 258 and must fit its bits; E is signed, and fills the rest."""
    largest = math.floor(math.nextafter(1, 0) * abi.FIT) + 1
    smallest = math.floor(0.5 * abi.FIT) + 1
    assert (smallest, largest) == (129, 258)
    assert largest <= abi.SIGNIFICAND_MASK
    # Balanced digits hold 127 · (256^n − 1) / 255 units: what a fitted unit makes of the largest.
    for count in (1, 2, 3, 4):
        splitter = Digits(count, fitted=True)
        assert (1 << splitter.shift) * abi.WHOLE / abi.FIT < splitter.largest + 0.5
    for exponent in (-1200, -1, 0, 127):
        for significand in (129, 256, 258):
            word = int(np.int32(exponent << abi.SIGNIFICAND_BITS | significand))
            assert (word >> 9, word & 511) == (exponent, significand)


def test_units_are_those_of_the_reference_backend() -> None:
    """0.75 and what is a little finer than two digits: g = ⌊0.75 · 257.25⌋ + 1 of 256."""
    x = np.zeros((1, 256), np.float32)
    x[0, :2] = 0.75 + 2.0**-20, 2.0**-22
    fitted = Digits(3, block=None, fitted=True)
    packed = digits.split(x, fitted, 256, 256)
    assert packed.significands[0, 0] * abi.WHOLE == 193
    unit = 193 * 2.0 ** (0 - abi.FIRST_DIGIT)
    values = packed.slices[0, 0].astype(np.float64)  # (slices, K)
    first = sum(values[p, 0] * unit * 2.0 ** (-8 * p) for p in range(3))
    assert abs(first - x[0, 0]) <= unit * 2.0**-16


@pytest.mark.parametrize("family", [HOPPER, PORTABLE], ids=lambda family: family.file)
@pytest.mark.parametrize("wide", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize("name", EMULATIONS)
def test_tiles_leave_room_for_every_accumulator(name: str, wide: bool, family: Family) -> None:
    """Registers of all values that the kernels declare, counted here as the kernels do."""
    scheme = EMULATIONS[name]
    accumulators = len({term.accumulator for term in scheme.terms})
    for blocks, per_block in ((1, 256), (64, 2)):
        if not scheme.exact and blocks > 1:
            continue
        place = layout(scheme.left, 1, 300, 64 * 256, scheme.lengths(64 * 256)[1], False)
        depth = Depth(place.steps, blocks, per_block if blocks > 1 else place.steps)
        grouped = isinstance(scheme.left, Digits) and scheme.left.group > 1
        if grouped:
            depth = Depth(place.steps, place.blocks, place.steps_per_block)
        chip = Chip(family, 132, 227 * 1024)
        tiles = candidates(scheme, depth, wide=wide, chip=chip)
        for tile in tiles:
            values = _values(family, scheme, accumulators, tile.promote, wide, grouped)
            assert values * tile.m * tile.n <= 384 * 128, tile
        assert tiles
        widest = max(it.m * it.n for it in tiles)
        for m in family.heights:
            for n in family.widths:
                values = _values(family, scheme, accumulators, tiles[0].promote, wide, grouped)
                stage = 64 * (scheme.left.count * m + scheme.right.count * n)
                if m * n > widest and 3 * stage <= chip.shared:
                    assert values * m * n > 384 * 128, "a larger tile fits as well"


def _values(
    family: Family, scheme: Any, accumulators: int, promoted: bool, wide: bool, grouped: bool
) -> int:
    """32-bit values of an element of C that a kernel holds at a time."""
    total = 2 if wide and scheme.exact else 1
    if family is HOPPER:
        # `Sum acc[ACCUMULATORS][REGISTERS]` in gemm_sm90.cu, combined in place.
        if not promoted:
            return accumulators
        # deferred.cuh: total, late and sum. ping_pong.cuh: `acc[1]` of floats, and the total.
        if not scheme.exact:
            return 3 if scheme.deferred else 2
        return accumulators + total  # ping_pong.cuh: `acc[ACCUMULATORS]` of integers, and the total
    # gemm_sm80.cu: `Sums` and `Values`, of which only one is whole where sums are short.
    if not promoted:
        return accumulators + (1 if wide and accumulators > 2 else 0)
    return 2 * total + 1 if grouped else accumulators + 2 * total
