"""What Python and CUDA share: codes, scale words, flags, and the layouts of structures.

Every such fact is stated here once. The CUDA kernels get it as headers, which `HEADERS` holds as
text and `compile.source_text` joins into a kernel's source; the Numba kernels, and the code that
launches kernels, import it. The reference backend, which says what packed operands mean, does not:
tests compare the two.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from mixpert_py.runtime.splitter import FIT


class ElementType(NamedTuple):
    """A type that tensor cores multiply. code: the value of ELEMENT in a kernel's source; size: of
    one element, in bytes; name: in PTX.
    """

    code: int
    size: int
    name: str


ELEMENTS: Final = {
    "int8": ElementType(0, 1, "s8"),
    "float16": ElementType(1, 2, "f16"),
    "bfloat16": ElementType(2, 2, "bf16"),
    "tf32": ElementType(3, 4, "tf32"),
}

WIDTHS: Final = 32, 64, 96, 128, 192, 256  # TILE_N of wgmma
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

# The types of members, as Python's `struct` has them; those of pointers are P.
FORMATS: Final = {"int": "i", "long long": "q"}


class Field(NamedTuple):
    """One member of a structure."""

    type: "str | Structure"
    name: str
    meaning: str


@dataclass(frozen=True)
class Structure:
    """A structure that a kernel takes by value, as both C and Python lay it out."""

    name: str
    meaning: str
    fields: tuple[Field, ...]

    @property
    def format(self) -> str:
        """The same layout as a native format of Python's `struct`, padded as C pads it."""
        parts = (
            one.type.format if isinstance(one.type, Structure) else FORMATS.get(one.type, "P")
            for one in self.fields
        )
        return "".join(parts) + "0P"

    @property
    def text(self) -> str:
        """The structure's definition in C++."""
        lines = [f"// {self.meaning}", f"struct {self.name} {{"]
        for one in self.fields:
            kind = one.type if isinstance(one.type, str) else one.type.name
            space = "" if kind.endswith("*") else " "
            lines.append(f"    {kind}{space}{one.name};  // {one.meaning}")
        return "\n".join([*lines, "};", ""])


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
    "One product C = A·B, or a batch of them, as every GEMM kernel takes it.",
    (
        Field(OPERAND, "a", "A"),
        Field(OPERAND, "b", "B"),
        Field("void *", "c", "(batch, m, n) float, or double where WIDE"),
        Field("const void *", "row", "null, or (n) of the same type, added to each row of C"),
        Field("long long", "c_stride", "elements from one product's C to the next's"),
        Field("long long", "c_leading", "elements from one row of C to the next, ≥ n"),
        Field("int", "batch", "products"),
        Field("int", "steps", "of STEP bytes of K"),
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
            "which alone are made; there is no row; else 0",
        ),
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


def _instructions() -> str:
    """The names of matrix instructions for an ELEMENT, and of wgmma's operands for a TILE_N: the
    accumulator, then P0 … P5. A preprocessor cannot count.
    """
    text = ""
    for element in ELEMENTS.values():
        kind, sums = ("int", "s32") if element.name == "s8" else ("float", "f32")
        text += f"#if ELEMENT == {element.code}\ntypedef {kind} Sum;\n"
        text += f'#define BIND "+{kind[0].replace("i", "r")}"\n#define SUM_TYPE "{sums}"\n'
        text += f'#define PRODUCT_K "{STEP // 2 // element.size}"\n'  # of K
        text += f'#ifndef A_TYPE\n#define A_TYPE "{element.name}"\n'
        text += f'#define B_TYPE "{element.name}"\n#endif\n#endif\n'
    for width in WIDTHS:
        registers = range(width // 2)
        names, bound = (",".join(map(one.format, registers)) for one in ("%{}", "BIND(d[{}])"))
        text += f'#if TILE_N == {width}\n#define SHAPE "m64n{width}"\n#define NAMES "{names}"\n'
        text += f"#define BINDINGS(d) {bound}\n"
        text += "".join(f'#define P{i} "%{width // 2 + i}"\n' for i in range(6)) + "#endif\n"
    return text


# What kernels include by these names. There are no such files.
HEADERS: Final = {
    "shared_constants.cuh": _constants(),
    "shared_instructions.cuh": _instructions(),
    "shared_problem.cuh": f"{OPERAND.text}\n{PROBLEM.text}",
}
