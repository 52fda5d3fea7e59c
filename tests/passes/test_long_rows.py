"""What `ast` has side by side and LibCST nests: too much of it would end the process."""

import pytest

from mixpert_py.errors import SourceError
from mixpert_py.passes.scopes import MAX_PARTS, read_scopes
from mixpert_py.passes.source import parse

ROWS = {
    "and": lambda n: "y = (" + " and ".join(["a"] * n) + ") @ x\n",
    "or": lambda n: "y = (" + " or ".join(["a"] * n) + ") @ x\n",
    "for": lambda n: "y = [a " + "for a in b " * n + "] @ x\n",
}


@pytest.mark.parametrize("kind", ROWS)
def test_long_rows_are_refused(kind: str) -> None:
    read_scopes(parse(ROWS[kind](MAX_PARTS), "m"), "m")
    with pytest.raises(
        SourceError, match=f"m: more than {MAX_PARTS} in a row; the file is skipped"
    ):
        read_scopes(parse(ROWS[kind](MAX_PARTS + 1), "m"), "m")
