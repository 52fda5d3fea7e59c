"""Repair: the grid of its kernel, and products with flagged lines on a GPU."""

import pytest

from mixpert_py.runtime.packing.operand import Form
from mixpert_py.runtime.packing.repair import COLUMNS, LINES, MOST_FLAGS, SOME_LINES, along, words


@pytest.mark.parametrize(
    ("m", "n"), [(1, 1), (LINES, COLUMNS), (LINES + 1, COLUMNS + 1), (9, 9000), (9, MOST_FLAGS)]
)
@pytest.mark.parametrize(("batch", "most"), [(1, 0), (3, 1), (264, 264), (1000, 264), (3, 264)])
def test_tiles_cover_rows_and_columns(m: int, n: int, batch: int, most: int) -> None:
    a = Form("float32", 1, m, 50, 0, 50, 1, True)
    b = Form("float32", 1, n, 50, 0, 1, n, True)
    grid, given = words((a, b), 16, batch, (m * n, n), most)
    assert given[:5] == (m, n, 50, 16, 4)
    rest = given[5:]
    lines, rows, tiles = rest[10:13]
    assert rows == -(-m // lines) * -(-n // COLUMNS)
    assert tiles - rows == -(-n // lines) * -(-m // COLUMNS)
    count, products, share, look = rest[-4:]
    owners = grid // share
    assert (count, owners * share) == (batch, grid)
    assert (owners - 1) * products < batch <= owners * products
    assert look == (most > 0 and m + n <= MOST_FLAGS)
    assert lines == (SOME_LINES if look else LINES)
    if look:
        assert grid <= most
        assert share == tiles or (share + 1) * owners > most
    else:
        assert (products, share) == (1, tiles)


def test_a_shared_operand_has_no_next_product() -> None:
    """Wherever its array would have one: some matrices of a stack are packed, and lent, alone."""
    a = Form("float32", 1, 5, 50, 250, 50, 1, True)
    b = Form("float32", 3, 7, 50, 350, 1, 7, True)
    _, given = words((a, b), 50, 3, (35, 7), 264)
    assert given[5:9] == (0, 50, 1, 0)
    assert given[9:13] == (350, 1, 7, 7)


def test_a_vector_is_summed_alike_however_it_lies() -> None:
    """A stack that is copied holds it otherwise, and has the same bits."""
    lies = (1, 0), (0, 1), (1, 1), (50, 1), (1, 50)
    assert {along(Form("float32", 1, 1, 50, 50, *strides, True)) for strides in lies} == {True}
