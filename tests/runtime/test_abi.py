"""What Python and CUDA share: layouts, codes and masks, each compared with what does not use it."""

import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime.kernels.abi import HEADERS, OPERAND, PROBLEM, SMALL, SOURCE, Structure

STRUCTURES = [OPERAND, PROBLEM, SOURCE, SMALL]
COMPILER = shutil.which("g++") or shutil.which("clang++")
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


@pytest.mark.parametrize("structure", STRUCTURES, ids=["operand", "problem", "source", "small"])
def test_numpy_and_struct_lay_structures_out_alike(structure: Structure) -> None:
    assert structure.dtype.itemsize == struct.calcsize(structure.format)
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
