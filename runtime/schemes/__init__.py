"""The registry of schemes, and the ladders that a tuner descends."""

from mixpert_py.errors import PlanError, unknown_scheme
from mixpert_py.runtime.scheme import Alternative, Scheme
from mixpert_py.runtime.schemes import crt, floats, int8, residues
from mixpert_py.runtime.splitter import FP32_RATE, FP64_RATE, INT8_RATE

CRT14 = residues.scheme(crt.FEWEST)
FP16X3 = floats.FP16X3

# Entries that are no emulation.
ALTERNATIVES = (
    Alternative("native", "native", INT8_RATE / FP32_RATE),
    Alternative("float64", "cast", INT8_RATE / FP64_RATE, dtype="float64"),
    # No less accurate than the native product, on every input: see `fp16x3`, which it is.
    Alternative("faithful", "choice", FP16X3.cost, FP16X3.error, products=FP16X3.products),
    # No less accurate than the native float64 product, on every input: see `crt`.
    Alternative("crt", "choice", CRT14.cost, CRT14.error, products=CRT14.products),
    # Of integers and booleans, see `exact_integers`.
    Alternative("exact", "exact", INT8_RATE / FP32_RATE),
    # Of products that NumPy makes in loops: in the operands' precision, sums in another order.
    Alternative("blas", "own", INT8_RATE / FP32_RATE),
    Alternative("float32", "cast", INT8_RATE / FP32_RATE, error=3.4e-7, dtype="float32"),
)

Entry = Scheme | Alternative
Rung = tuple[str, ...]

_ENTRIES: tuple[Entry, ...] = (*ALTERNATIVES, *int8.SCHEMES, *residues.SCHEMES, *floats.SCHEMES)

SCHEMES: dict[str, Entry] = {
    entry.name: entry for entry in sorted(_ENTRIES, key=lambda entry: entry.error)
}

# Rungs, best first; names beside one another are incomparable.
_CRT = " ".join(f"crt{count}" for count in range(16, 6, -1))
_RUNGS = {
    "mixpert": "native mixpert-full mixpert-IV mixpert-II|mixpert-III mixpert-I",
    # int8x10 is for float64: of float32, faithful is about as accurate, and faster.
    "int8": "native int8x10 faithful int8x6 int8x3 int8x1",
    # For float64: int8x10 and int8x8 are slower than crt9 and crt8, and less accurate.
    "crt": f"native {_CRT} faithful int8x6 int8x3 int8x1",
    "fp16": "native fp16x3 fp16",
    "cpu": "native exact blas float32",
}
LADDERS: dict[str, tuple[Rung, ...]] = {
    name: tuple(tuple(rung.split("|")) for rung in rungs.split()) for name, rungs in _RUNGS.items()
}


def get(name: str) -> Entry:
    """The scheme, or alternative, of that name. Raises PlanError, listing the names there are."""
    try:
        return SCHEMES[name]
    except KeyError:
        raise PlanError(unknown_scheme(name, SCHEMES)) from None


def emulation_of(name: str) -> Scheme:
    """The emulation that a scheme's name stands for: the scheme, or the one that `faithful`, or
    `crt`, begins with. Raises PlanError as `get` does.
    """
    entry = get(name)
    return entry if isinstance(entry, Scheme) else CRT14 if name == "crt" else FP16X3


def schemes() -> tuple[str, ...]:
    """The names of all schemes, the most accurate on normal data first."""
    return tuple(SCHEMES)


def ladder(name: str) -> tuple[Rung, ...]:
    """Rungs of a ladder, best first; a rung with several names holds incomparable schemes.

    Raises PlanError on an unknown ladder.
    """
    try:
        return LADDERS[name]
    except KeyError:
        raise PlanError(f"unknown ladder {name!r}; known: {', '.join(LADDERS)}") from None
