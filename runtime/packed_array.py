"""An operand that is packed once and multiplied often: weights, say."""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from mixpert_py.errors import PlanError, ShapeError
from mixpert_py.runtime.arrays import PRECISION, AnyArray, default_scheme, name_of
from mixpert_py.runtime.context import Choice, current
from mixpert_py.runtime.gpu import foreign
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Call, Settings
from mixpert_py.runtime.schemes import emulation_of, get

Side = Literal["left", "right"]


@dataclass(frozen=True, slots=True, eq=False)
class PackedArray:
    """The result of `pack`: it replaces its array in `matmul`, on the same side only.

    array: the operand itself, which must not be written to while this is in use. scheme: what its
    products run under. packed: its slices on the device; None where there is nothing to pack for,
    and products are as they would be with the array. steps: the emulation it is packed for.
    """

    array: Any
    scheme: str
    side: Side
    packed: Any = None

    __array_ufunc__: ClassVar[None] = None  # NumPy must not take it for an object array

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)


UNPACKED = ("native", "float32", "float64")  # schemes whose operands are kept as they are


def pack(b: AnyArray, scheme: str | None = None, side: Side = "right") -> PackedArray:
    """An operand packed once, for `matmul` to take in place of the array.

    b: (…, k, n), or (…, m, k) with side "left"; float32, float64 or complex, on a GPU; arrays
    elsewhere are kept as they are. scheme: None for the one in force, else the default of the type:
    `faithful`, of float64 `crt`, of complex128 `native`, which keeps the array as it is. It needs
    0.75 to 1.25 times the array's memory (four bytes a number at most) besides the array, a byte a
    number for each modulus of residues, and for complex ones as much as the array again. For `crt`,
    of 14 moduli, it waits for the device, and keeps an array that 14 never suit as it is. Large
    `faithful` products take 1.5 times both operands' memory besides, while they are made. Raises
    PlanError for an unknown scheme or side, ShapeError for fewer than two dimensions, TypeError for
    other types.
    """
    if side not in ("left", "right"):
        raise PlanError(f"unknown side {side!r}; known: left, right")
    name = scheme or current().scheme or _default(b)
    get(name)
    placement = foreign.placement(b, b)
    if not isinstance(placement, foreign.Placement) or name in UNPACKED:
        return PackedArray(b, name, side)
    if b.ndim < 2:
        raise ShapeError(f"cannot pack an operand of shape {tuple(b.shape)}: wanted a matrix")
    if name_of(b.dtype) not in PRECISION:
        raise TypeError(f"cannot pack {name_of(b.dtype)}: wanted float32, float64 or complex")
    borrowed = foreign.borrow(placement, b, b)
    if isinstance(borrowed, Reason) or 0 in b.shape:
        return PackedArray(b, name, side)
    from mixpert_py.runtime.gpu.multiply import pack_operand

    chosen = emulation_of(name)
    with borrowed.scope() if borrowed.scope is not None else nullcontext():
        packed = pack_operand(borrowed.a, chosen, side, recorded=name == "crt")
    return PackedArray(b, name, side, None if isinstance(packed, Reason) else packed)


def _default(b: object) -> str:
    """Return the scheme for which `pack` packs an operand if none is given or in force."""
    dtype = name_of(getattr(b, "dtype", None))
    return default_scheme(dtype) or ("native" if dtype in PRECISION else "faithful")


def unpacked(call: Call, settings: Settings) -> tuple[Call, Choice]:
    """The call with its arrays in place of packed operands, and the scheme they were packed for.

    Raises PlanError where the call asks for another scheme, or an operand is on the other side.
    """
    a, b = call.a, call.b
    names = []
    for operand, side in ((a, "left"), (b, "right")):
        if type(operand) is not PackedArray:
            continue
        names.append(operand.scheme)
        if operand.side != side:
            raise PlanError(
                f"an operand packed for the {operand.side} stands on the {side}; "
                f"pack it with side={side!r}"
            )
    for name in (*names, settings.scheme or names[0]):
        if name != names[0]:
            raise PlanError(
                f"an operand packed for {names[0]!r} cannot take {name!r}; pack it anew"
            )
    if settings.block is not None:
        raise PlanError("a packed operand has its block and scheme: no block")
    left, right = (
        x if type(x) is PackedArray else PackedArray(x, names[0], "left") for x in (a, b)
    )
    call = call._replace(a=left.array, b=right.array, left=left.packed, right=right.packed)
    return call, Choice(names[0])
