"""What `ast` has side by side and LibCST nests: too much of it would end the process."""

from pathlib import Path

import pytest

from mixpert_py.errors import SourceError
from mixpert_py.passes.scopes import MAX_PARTS, read_scopes
from mixpert_py.passes.source import parse
from tests.mixpert_py.command import forked

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


def test_the_command_does_not_crash(tmp_path: Path) -> None:
    """At 9000 LibCST ended it by a signal."""
    for kind, row in ROWS.items():
        for n in (MAX_PARTS, 9000):
            (tmp_path / f"{kind}_{n}.py").write_text(row(n))
    done = forked("mixpert_py", "rewrite", "--diff", ".", folder=tmp_path)
    assert done.code == 2
    assert done.out.count("+y = _mixpert.matmul") == len(ROWS)
    assert done.err.count("in a row; the file is skipped\n") == len(ROWS)
