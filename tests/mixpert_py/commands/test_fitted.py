"""Tables on narrow terminals: columns give way, places stay whole."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from mixpert_py.commands.fitted import Column, fitted
from tests.mixpert_py.command import Mixpert

PLACE = "packages/network/layers.py:12:8"
COLUMNS = (
    Column("place"),
    Column("calls", right=True, drop=1),
    Column("kind", drop=2),
    Column("why", wraps=True),
)
ROW = (PLACE, "1000000", "matmul", "is not an array of numbers")


def printed(width: int) -> str:
    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(fitted(COLUMNS, [ROW], width))
    return file.getvalue()


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (100, {"place", "calls", "kind", "why"}),
        (60, {"place", "calls", "why"}),
        (46, {"place", "why"}),
    ],
)
def test_columns_give_way_in_their_order(width: int, shown: set[str]) -> None:
    text = printed(width)
    assert set(text.splitlines()[0].split()) == shown
    assert PLACE in text
    assert "…" not in text
    assert all(len(line.rstrip()) <= width for line in text.splitlines())


def test_what_is_wider_than_the_terminal_is_folded() -> None:
    text = printed(20)
    assert "…" not in text
    lines = [line[:6].strip() for line in text.splitlines()[2:]]
    assert "".join(lines) == PLACE


PROGRAM = """\
import numpy as np
rng = np.random.default_rng(0)
matrix = rng.standard_normal((64, 64))
result_of_the_first_of_the_products = matrix @ matrix
last = np.dot(result_of_the_first_of_the_products, matrix[:, None, 0:64].reshape(64, 64))
"""


@pytest.mark.parametrize("width", [60, 80])
def test_tables_of_commands_fit_and_keep_places(
    tmp_path: Path, mixpert: Mixpert, width: int
) -> None:
    folder = tmp_path / "folder_of_programs"
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    wide = {"COLUMNS": str(width)}
    path = "folder_of_programs/program.py"
    listed = mixpert("sites", path, **wide).out
    assert f"{path}:4:39" in listed
    profile = mixpert("run", "--profile", path, **wide).err
    tiles = mixpert("tiles", "4096", "4096", "4096", "--device", "h200", **wide).out
    assert "← taken" in tiles
    for text in (listed, profile, tiles.partition("\n\npacking")[0]):
        assert "…" not in text
        assert all(len(line.rstrip()) <= width for line in text.splitlines()), text
