"""The description of an operand that a packing kernel is compiled for."""

import math
from functools import lru_cache
from typing import NamedTuple

from mixpert_py.runtime.kernels.abi import ELEMENTS
from mixpert_py.runtime.splitter import Digits, FloatSlices, Splitter


class Side(NamedTuple):
    """One operand: its splitter and its type in memory. Plain values only.

    loss: how much of its 2-norm a row may lose, squared; lower: see `outliers.crowded`, infinite
    where it does not apply. size: bytes of an element. wide: the type that slices are computed in.
    """

    kind: str
    element: str
    size: int
    slices: int
    memory: str
    wide: str
    group: int = 1
    # Of digits.
    width: int = 0
    shift: int = 0
    threshold: float = 0.0
    fitted: bool = False
    held: int = 0
    loss: float = 0.0
    lower: float = math.inf
    # Of floats.
    bits: int = 0
    smallest: float = 0.0
    truncate: bool = False
    step: int = 0
    scaled: bool = False
    range: float = math.inf
    highest: int = 15
    span: int = -1  # none
    whole: tuple[int, int] | None = None

    @property
    def fineness(self) -> bool:
        """Whether a row's finest entry, or lowest bit, decides about it beside its largest."""
        return self.fitted or self.span >= 0

    @property
    def room(self) -> int:
        """Rows where twice the exponent, and log2 K, come to more are large; −1: none is.

        Slices are below 2^e (1 + 2^-7): sums of K products of a row and a column that are not large
        are below 2^127 (1 + 2^-6), of float32 numbers. Of these, floats round nothing up to 2^128.
        """
        if self.kind == "floats" and (self.memory == "float32" or not self.scaled):
            return -1
        return 127 if self.memory == "float32" else 1023

    @property
    def sums(self) -> int:
        """The number of sums that decide whether a row leaves: one of its loss, the others of its
        digits' squares.
        """
        if self.kind == "floats":
            return 0
        return self.slices if self.lower < math.inf else 1

    @property
    def single(self) -> bool:
        """Whether nothing is in double precision."""
        return self.wide == self.memory == "float32"


@lru_cache
def side(splitter: Splitter, memory: str, result: str) -> Side:
    """memory: the operand's type, "float32" or "float64"; result: the product's."""
    if isinstance(splitter, Digits):
        return Side(
            "digits",
            "int8",
            1,
            splitter.count,
            memory,
            result,
            splitter.group,
            width=splitter.width,
            shift=splitter.shift,
            # RN(f · 2^shift) > largest, which is odd, from the half above it on.
            threshold=math.ldexp(splitter.largest + 0.5, -splitter.shift),
            fitted=splitter.fitted,
            held=splitter.held,
            loss=splitter.loss_limit**2,
            lower=splitter.lower_limit if splitter.group == 1 else math.inf,
        )
    assert isinstance(splitter, FloatSlices)  # of residues there are no kernels
    element = splitter.element
    # In float32 a scaled row's small entries could lose bits that BF16 and TF32 can hold.
    single = memory == "float32" and element.name == "float16"
    return Side(
        "floats",
        element.name,
        ELEMENTS[element.name].size,
        splitter.count,
        memory,
        "float32" if single else "float64",
        bits=element.bits,
        smallest=element.smallest,
        truncate=splitter.rounding == "zero",
        step=splitter.step,
        scaled=splitter.scaled,
        range=splitter.range,
        highest=splitter.highest,
        span=-1 if splitter.span is None else splitter.span,
        whole=splitter.whole if memory == "float32" else None,
    )
