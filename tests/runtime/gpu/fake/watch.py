"""What is found of the operands of `crt`, by the word of a test."""

from collections.abc import Iterator
from typing import Any

from mixpert_py.runtime.gpu.speculation import MAX_UNSEEN, NEITHER, Known, Record, UnfitError
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes.crt import NONE, Rows
from mixpert_py.runtime.schemes.integers import Bounds, is_exact, scheme_for


class FakeWatch:
    """Finds what the test says, once operands are packed."""

    found: Iterator[int | None]
    bounds: Iterator[tuple[Bounds, Bounds] | None] | None = None
    alone: Rows = NONE  # of an operand that is packed beforehand

    def __init__(self, xp: Any, known: Known = NEITHER, most: int | None = None) -> None:
        self.records, self._most = (0, 0), most
        self._is_packed = None not in known
        self._seen: list[int | None] = []

    def packed(self, now: Any) -> None:
        self._is_packed = True
        if self._most is not None and (self.moduli() or MAX_UNSEEN) > self._most:
            raise UnfitError

    def left(self) -> Record:
        assert self._is_packed
        return Record(None, [*self.alone, 0.0, 0.0])

    def moduli(self) -> int | None:
        assert self._is_packed
        self._seen = self._seen or [next(self.found)]
        return self._seen[0]

    def integers(self, k: int) -> Scheme | None:
        assert self._is_packed
        self._bounds = None if self.bounds is None else next(self.bounds)
        return None if self._bounds is None else scheme_for(*self._bounds, k)

    def is_exact(self, made: Scheme, k: int) -> bool:
        return self._bounds is not None and is_exact(made, *self._bounds, k)
