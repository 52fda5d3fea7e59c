"""What Python and CUDA share: codes, scale words, flags, and the layouts of structures.

Every such fact is stated here once. The CUDA kernels get it as headers, which `HEADERS` holds as
text and `compile.source_text` joins into a kernel's source; the Numba kernels, and the code that
launches kernels, import it. The reference backend, which says what packed operands mean, does not:
tests compare the two.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from mixpert_py.runtime.splitter import FIT


class ElementType(NamedTuple):
    """A type that tensor cores multiply. code: the value of ELEMENT in a kernel's source; size: of
    one element, in bytes.
    """

    code: int
    size: int


ELEMENTS: Final = {
    "int8": ElementType(0, 1),
    "float16": ElementType(1, 2),
    "bfloat16": ElementType(2, 2),
    "tf32": ElementType(3, 4),
}

# Bytes of K of one row of one slice. The swizzle of packed slices, 4 chunks of 16 bytes, and the
# descriptors of wgmma are made for 64.
STEP: Final = 64

# A scale word is E << SIGNIFICAND_BITS | g: a unit of the highest slice is g · 2^E. The significand
# of a power of two is WHOLE; that of a fitted unit lies between 129 and 258.
SIGNIFICAND_BITS: Final = 9
SIGNIFICAND_MASK: Final = (1 << SIGNIFICAND_BITS) - 1
WHOLE_LOG: Final = 8
WHOLE: Final = 1 << WHOLE_LOG
# The first of 8-bit or 7-bit digits of a block below 2^e is in units of g / WHOLE · 2^(e − 7), so
# its E is e − FIRST_DIGIT.
FIRST_DIGIT: Final = 7 + WHOLE_LOG

# Bits of a row's flag, of which at most one is set where K is one block. NONFINITE: the row holds
# NaN or Inf. OUTLIER: all of it, or some of its tiles, left the slices. LARGE: it stays in the
# slices, and what they make of it may overflow though A·B does not.
NONFINITE: Final = 1
OUTLIER: Final = 2
LARGE: Final = 4
LEAVES: Final = NONFINITE | OUTLIER

Scalar = np.dtype[Any]
POINTER: Final[Scalar] = np.dtype(np.uint64)
SCALARS: Final[dict[str, Scalar]] = {
    "int": np.dtype(np.int32),
    "long long": np.dtype(np.int64),
    "double": np.dtype(np.float64),
}
FORMATS: Final = {
    POINTER: "P",
    SCALARS["int"]: "i",
    SCALARS["long long"]: "q",
    SCALARS["double"]: "d",
}


class Field(NamedTuple):
    """One member of a structure. length: elements, where it is an array; 0: it is none."""

    type: "str | Structure"
    name: str
    meaning: str
    length: int = 0


@dataclass(frozen=True)
class Structure:
    """A structure that a kernel takes by value, as both C and Python lay it out."""

    name: str
    meaning: str
    fields: tuple[Field, ...]

    @property
    def dtype(self) -> np.dtype[np.void]:
        """The same layout in NumPy: pointers are uint64, members are aligned as in C."""
        members = [
            (one.name, _member(one.type), *([(one.length,)] if one.length else []))
            for one in self.fields
        ]
        return np.dtype(members, align=True)

    @property
    def format(self) -> str:
        """The same layout as a format of Python's `struct`, padded to the structure's size."""
        text, end = "", 0
        for offset, kind in _scalars(self.dtype):
            text += f"{offset - end}x" * (offset > end) + FORMATS[kind]
            end = offset + kind.itemsize
        rest = self.dtype.itemsize - end
        return text + f"{rest}x" * (rest > 0)

    @property
    def leaves(self) -> tuple[str, ...]:
        """The names of all values, in the order of `format`: "a.slices", "of[0].x"."""
        return tuple(_leaves(self))

    @property
    def text(self) -> str:
        """The structure's definition in C++."""
        lines = [f"// {self.meaning}", f"struct {self.name} {{"]
        for one in self.fields:
            kind = one.type if isinstance(one.type, str) else one.type.name
            array = f"[{one.length}]" if one.length else ""
            space = "" if kind.endswith("*") else " "
            lines.append(f"    {kind}{space}{one.name}{array};  // {one.meaning}")
        return "\n".join([*lines, "};", ""])


def _member(kind: str | Structure) -> Scalar:
    if isinstance(kind, Structure):
        return kind.dtype
    return POINTER if kind.endswith("*") else SCALARS[kind]


def _scalars(kind: Scalar, start: int = 0) -> Iterator[tuple[int, Scalar]]:
    """Offset and type of every scalar in a NumPy type, in order."""
    if kind.subdtype is not None:
        base, shape = kind.subdtype
        for i in range(shape[0]):
            yield from _scalars(base, start + i * base.itemsize)
    elif kind.names is not None and kind.fields is not None:
        for name in kind.names:
            member, offset = kind.fields[name][:2]
            yield from _scalars(member, start + offset)
    else:
        yield start, kind


def _leaves(structure: Structure) -> Iterator[str]:
    for one in structure.fields:
        names = [f"{one.name}[{i}]" for i in range(one.length)] if one.length else [one.name]
        for name in names:
            if isinstance(one.type, Structure):
                yield from (f"{name}.{inner}" for inner in _leaves(one.type))
            else:
                yield name


OPERAND: Final = Structure(
    "Operand",
    "A packed operand: A by its rows, B by its columns.",
    (
        Field(
            "const unsigned char *",
            "slices",
            "(batch, steps, count, rows8, STEP) bytes, swizzled; 32 KiB past the end may be read",
        ),
        Field("const int *", "scales", "(batch, blocks, rows) scale words"),
        Field(
            "long long",
            "slices_stride",
            "bytes from one product's slices to the next's; 0: shared by all",
        ),
        Field("long long", "scales_stride", "bytes, likewise"),
        Field("int", "rows", "m of A, n of B"),
        Field("int", "rows8", "rows, rounded up to a multiple of 8"),
    ),
)

PROBLEM: Final = Structure(
    "Problem",
    "One product C = alpha · A·B + beta · C_in, or a batch of them, as every GEMM kernel takes it.",
    (
        Field(OPERAND, "a", "A"),
        Field(OPERAND, "b", "B"),
        Field("void *", "c", "(batch, m, n) float, or double where WIDE"),
        Field("const void *", "c_in", "of the same type; where beta is 0 not read, it may be null"),
        Field("long long", "c_stride", "elements from one product's C to the next's"),
        Field("long long", "c_in_stride", "elements; 0: shared by all"),
        Field("long long", "c_leading", "elements from one row of C to the next, ≥ n"),
        Field("long long", "c_in_leading", "elements"),
        Field("double", "alpha", "rounded to float unless WIDE"),
        Field("double", "beta", "likewise"),
        Field("int", "batch", "products"),
        Field("int", "steps", "of STEP bytes of K; 0: C = beta · C_in"),
        Field("int", "blocks", "that have scales of their own; 1 for floating-point slices"),
        Field("int", "steps_per_block", "0 where blocks are half a step (32 integers)"),
        Field(
            "int", "segment_steps", "≥ 1: steps that INT32 accumulators cover at most; 508 is exact"
        ),
        Field("int", "group", "≥ 1: rows of tiles taken together, so that operands stay in L2"),
        # The tiles of a last wave that would leave most of the chip idle are cut along K.
        Field(
            "int *",
            "parts",
            "zeros: of each tile of the last wave that is cut along K, how many parts are done, "
            "padded to 32 words; then sums",
        ),
        Field("int", "tail", "such tiles; 0: none"),
        Field("int", "split", "parts of each"),
        Field("const int *", "gate", "null, or the address of a word that an earlier kernel wrote"),
        Field("int", "open", "unless the word is this, nothing is done"),
        Field(
            "int",
            "triangle",
            "where C is symmetric: the tiles of a product that reach the diagonal or lie below it, "
            "which alone are made; alpha is 1, beta 0; else 0",
        ),
    ),
)

SOURCE: Final = Structure(
    "Source",
    "An operand of small products, as it lies in memory. Strides are in elements.",
    (
        Field("const float *", "x", "the first element"),
        Field("unsigned char *", "flags", "(batch, rows), written by the kernel"),
        Field("long long", "batch", "stride from one product's operand to the next's; 0: shared"),
        Field("long long", "stride", "from one row, or ACROSS one position of K, to the next"),
        Field("long long", "rows", "m of A, n of B"),
        Field("long long", "k", "positions of K"),
    ),
)

SMALL: Final = Structure(
    "Problem",
    "Many small products, as `small_sm90.cu` takes them: every word has 64 bits.",
    (
        Field(SOURCE, "of", "A, B", 2),
        Field("float *", "c", "(batch, m, n), rows contiguous"),
        Field("long long", "c_batch", "elements from one product's C to the next's"),
        Field("long long", "c_stride", "elements from one row of C to the next"),
        Field("long long", "down", "tiles of a product, along its rows"),
        Field("long long", "along", "tiles of a product, along its columns"),
        Field("long long", "ahead", "blocks resident at a time; 0: nothing is fetched into L2"),
    ),
)


def _constants() -> str:
    """Codes, and the masks of scale words and flags, for C++ and its preprocessor."""
    codes = "".join(
        f"#define ELEMENT_{name.upper()} {element.code}\n" for name, element in ELEMENTS.items()
    )
    numbers = {
        name: globals()[name]
        for name in (
            *("STEP", "SIGNIFICAND_BITS", "SIGNIFICAND_MASK", "WHOLE_LOG", "WHOLE", "FIRST_DIGIT"),
            *("NONFINITE", "OUTLIER", "LARGE", "LEAVES"),
        )
    }
    values = "".join(f"constexpr int {name} = {value};\n" for name, value in numbers.items())
    text = f"{codes}{values}constexpr float FIT = {FIT}f;\n"
    return f"#ifndef SHARED_CONSTANTS\n#define SHARED_CONSTANTS\n{text}#endif\n"


# What kernels include by these names. There are no such files.
HEADERS: Final = {
    "shared_constants.cuh": _constants(),
    "shared_problem.cuh": f"{OPERAND.text}\n{PROBLEM.text}",
    "shared_small_problem.cuh": f"{SOURCE.text}\n{SMALL.text}",
}
