"""Crest factors of rows, as NumPy sees them."""

import numpy as np
import pytest

from mixpert_py.runtime import crest


def test_known_rows() -> None:
    rows = np.array([[1.0, -1, 1, 1], [0, 0, -3, 0], [1, 2, 2, 0]])
    squares = [1.0, 1.0, 3 * 4 / 9]
    for row, square in zip(rows, squares, strict=True):
        assert crest.mean_square(row[np.newaxis]) == pytest.approx(square)
    assert crest.mean_square(rows) == pytest.approx(np.mean(squares))
    assert crest.mean_square(1e30 * rows.astype(np.float32)) == pytest.approx(np.mean(squares))


def test_zeros_lose_nothing() -> None:
    draw = np.random.default_rng(0)
    x = draw.standard_normal((64, 1000))
    sparse = np.zeros((64, 50_000))
    sparse[:, ::50] = x
    assert crest.mean_square(sparse[:, :10_000]) == pytest.approx(crest.mean_square(x[:, :200]))
    assert crest.mean_square(np.eye(100)) == 1


def test_rows_that_say_nothing() -> None:
    rows = np.array([[0.0, 0], [np.nan, 1], [np.inf, 1], [1, 1]])
    assert crest.mean_square(rows) == 0.25
    assert crest.mean_square(np.empty((0, 5))) == crest.mean_square(np.empty((5, 0))) == 0


def test_complex_entries_by_their_moduli() -> None:
    assert crest.mean_square(np.array([[3 + 4j, 5, -5j]])) == pytest.approx(1)


def test_evenly_spaced_rows_of_a_stack() -> None:
    assert crest.lines(3).tolist() == [0, 1, 2]
    assert crest.lines(6400).tolist() == list(range(0, 6400, 100))
    x = np.ones((100, 64, 3))
    x[::2, :, 0] = 7
    # Row 100 i is row 36 i mod 64 of matrix 25 i // 16: of 64, those of even matrices.
    found = [49 / 17 if 100 * i // 64 % 2 == 0 else 1 for i in range(64)]
    assert crest.mean_square(x) == pytest.approx(np.mean(found))


def test_long_rows_in_part() -> None:
    assert [crest.stride(k) for k in (1, 1 << 14, (1 << 14) + 1, 1 << 20)] == [1, 1, 2, 64]
    x = np.zeros((1, 1 << 15))
    x[0, 1::2] = 9
    x[0, ::2] = 1
    assert crest.mean_square(x) == 1


def test_what_data_has() -> None:
    """Far from `faithful.CREST`, which a product of two has to pass."""
    draw = np.random.default_rng(0)
    normal = draw.standard_normal((64, 16384))
    assert 14 < crest.mean_square(normal) < 20
    assert 2.9 < crest.mean_square(draw.uniform(-1, 1, (64, 16384))) < 3.1
    triangle = np.linalg.inv(np.tril(np.ones((512, 512))) / 512 + np.eye(512))
    assert crest.mean_square(triangle) > 150
