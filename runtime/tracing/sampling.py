"""Which calls of a site are looked into: early ones, then fewer and fewer. By count, not by clock,
so that two runs look into the same.
"""

from collections.abc import Hashable

KINDS = 16


class Sampling:
    """Calls 1, 2, 3, 5, 8, 13, … of every kind: Fibonacci's numbers.

    Powers of two would do as well, but that they are even: a site that does one thing every other
    call would show half of what it does. A kind is a shape and its dtypes. Those beyond the first
    KINDS count as one, so that n calls are looked into O(log n) times whatever they are.
    """

    __slots__ = ("_kinds",)

    def __init__(self) -> None:
        # kind → calls so far, the next call to look into, and the one after that
        self._kinds: dict[Hashable, tuple[int, int, int]] = {}

    def takes(self, kind: Hashable) -> bool:
        """Count a call of this kind; whether it is one to look into."""
        if kind not in self._kinds and len(self._kinds) >= KINDS:
            kind = None
        calls, due, after = self._kinds.get(kind, (0, 1, 2))
        calls += 1
        is_due = calls == due
        self._kinds[kind] = (calls, after, due + after) if is_due else (calls, due, after)
        return is_due
