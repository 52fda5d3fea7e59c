"""Found: what a spelling says about a node that is written its way."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Found:
    """A product. `names`: what the called name means, so that a second reader can confirm it."""

    kind: str
    reason: str | None = None
    names: frozenset[str] = frozenset()
