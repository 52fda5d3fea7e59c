"""Repair: the grid of its kernel, and products with flagged lines on a GPU."""

import numpy as np
import pytest

from mixpert_py.runtime.kernels.abi import NONFINITE, OUTLIER
from mixpert_py.runtime.packing.operand import Form
from mixpert_py.runtime.packing.repair import COLUMNS, LINES, MOST_FLAGS, SOME_LINES, along, words
from tests.runtime.emulations import EMULATIONS


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


@pytest.mark.gpu
@pytest.mark.parametrize("order", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("count", [1, 100])
def test_flagged_lines_on_the_device(order: str, dtype: type, batch: int, count: int) -> None:
    """All that is flagged is out of the slices: what repair adds is the product itself."""
    import cupy

    from mixpert_py.runtime.packing import by_columns, by_rows, pack
    from mixpert_py.runtime.packing.repair import repair

    scheme = EMULATIONS["int8x6"]
    rng = np.random.default_rng(3)
    m, k, n = 700, 900, 300
    a = rng.standard_normal((batch, m, k)).astype(dtype)
    b = rng.standard_normal((batch, k, n)).astype(dtype)
    a[0, 3, 7], a[-1, 600, 5], b[0, 11, 299] = np.nan, np.inf, -np.inf
    some, others = slice(450, 450 + count), slice(40, 40 + count)
    a[0, some], b[-1, :, others] = -0.0039375, -0.0039375  # a one beside it: all second digits −128
    a[0, some, 0] = b[-1, 0, others] = 1
    x, y = (
        cupy.asarray(one)
        if letter == "C"
        else cupy.asarray(one.swapaxes(1, 2)).copy().swapaxes(1, 2)
        for one, letter in zip((a, b), order, strict=True)
    )
    left, right = pack(by_rows(x), by_columns(y), scheme)
    rows, columns = left.view("flags").get(), right.view("flags").get()
    assert (rows[0, some] == OUTLIER).all()
    assert (columns[-1, others] == OUTLIER).all()
    assert rows[0, 3] == rows[-1, 600] == columns[0, 299] == NONFINITE
    found = []
    for _ in range(2):
        out = cupy.zeros((batch, m, n), dtype)
        repair(left, right, out)
        found.append(out.get())
    np.testing.assert_array_equal(found[0], found[1])
    with np.errstate(all="ignore"):
        exact = a.astype(np.float64) @ b.astype(np.float64)
        size = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    marked = (rows > 0)[:, :, None] | (columns > 0)[:, None, :]
    assert not found[0][~marked].any()
    finite = marked & np.isfinite(exact)
    unit = np.finfo(dtype).eps
    assert (np.abs(found[0] - exact)[finite] <= (k + 4) * unit * size[finite]).all()
    np.testing.assert_array_equal(
        found[0][marked & ~np.isfinite(exact)], exact[marked & ~np.isfinite(exact)]
    )
