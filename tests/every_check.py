"""How much is checked: by default enough to see a mistake, all with EVERY_CHECK=1 set."""

import os
from collections.abc import Iterable
from typing import TypeVar

Case = TypeVar("Case")

EACH = 3
EVERY_CHECK = bool(os.environ.get("EVERY_CHECK"))


def some(cases: Iterable[Case]) -> list[Case]:
    """The first case and each third after it; all with EVERY_CHECK=1."""
    return [*cases][:: 1 if EVERY_CHECK else EACH]


def examples(count: int) -> int:
    """So many of Hypothesis's examples, a third by default."""
    return count if EVERY_CHECK else count // EACH
