"""Panels, padding and powers of two."""

import numpy as np
import pytest

from mixpert_py.runtime.reference.packed import padded, panels, times_power_of_two


@pytest.mark.parametrize(
    ("rows", "k", "group"), [(0, 5, 1), (7, 3, 1), (999, 500, 16), (9, 10**6, 8)]
)
def test_panels_cover_all_rows_in_whole_groups(rows: int, k: int, group: int) -> None:
    found = panels(rows, k, group)
    assert [row for panel in found for row in range(panel.start, panel.stop)] == list(range(rows))
    assert all(panel.start % group == 0 for panel in found)


def test_padded_is_a_native_copy() -> None:
    x = np.arange(12, dtype=">f4").reshape(3, 4)
    panel = padded(x, slice(1, 3), 6)
    assert panel.dtype.isnative
    np.testing.assert_array_equal(panel, [[4, 5, 6, 7, 0, 0], [8, 9, 10, 11, 0, 0]])
    panel[:] = 0
    assert x[1, 0] == 4


@pytest.mark.parametrize(
    ("value", "powers", "expected"),
    [
        (1.5, (10, -3), 1.5 * 2.0**7),
        (1.5, (200, -190), 1.5 * 2.0**10),
        (1.5, (-200, 199), 0.75),
        (2.0**24 - 1, (-300, 276), 1 - 2.0**-24),
        (2.0**24 - 1, (120, -119), 2.0**25 - 2),
        (1 + 2.0**-23, (-127, 127), 1 + 2.0**-23),
        (1.0, (-100, -60), 0.0),
        (3.0, (-90, -60), 2.0**-148),
    ],
)
def test_powers_of_two_are_applied_at_once(
    value: float, powers: tuple[int, int], expected: float
) -> None:
    x = np.full((2, 3), value, np.float32)
    left, right = np.full((2, 1), powers[0], np.int32), np.full(3, powers[1], np.int32)
    with np.errstate(under="ignore"):
        assert times_power_of_two(x, left, right) is x
    np.testing.assert_array_equal(x, np.float32(expected))
