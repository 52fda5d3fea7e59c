"""What Python and CUDA share: layouts, codes and masks, each compared with what does not use it."""

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from mixpert_py.runtime.kernels.abi import FORMATS, HEADERS, OPERAND, PROBLEM, Structure

STRUCTURES = [OPERAND, PROBLEM]
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
    """The path and offset of every value, as Python's `struct` has them."""
    found, before = [], ""
    for one in structure.fields:
        if isinstance(one.type, Structure):
            start = struct.calcsize(before)
            found += [(f"{one.name}.{path}", start + at) for path, at in offsets(one.type)]
            before += one.type.format
        else:
            code = FORMATS.get(one.type, "P")
            before += code
            found.append((one.name, struct.calcsize(before) - struct.calcsize(code)))
    assert struct.calcsize(before + "0P") == struct.calcsize(structure.format)
    return found


def test_the_generated_header_says_the_same_to_a_compiler(tmp_path: Path) -> None:
    if COMPILER is None:
        pytest.skip("no C++ compiler")
    checks = [
        f"static_assert({name} == {value}, {name!r});".replace("'", '"')
        for name, value in CONSTANTS.items()
    ]
    text = f"#include <cstddef>\n{HEADERS['shared_constants.cuh']}{HEADERS['shared_problem.cuh']}"
    for one in STRUCTURES:
        checks.append(f"static_assert(sizeof({one.name}) == {struct.calcsize(one.format)});")
        checks += [
            f"static_assert(offsetof({one.name}, {path}) == {offset});"
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
