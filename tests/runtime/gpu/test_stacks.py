"""Stacks: every matrix of C has its operands, whatever repeats itself."""

from itertools import permutations

import numpy as np
import pytest

from mixpert_py.runtime.gpu.stacks import batches, is_one_stack, matrices, stack_sizes

STACKS = [
    ((), (), 1),
    ((4,), (), 1),
    ((), (4,), 1),
    ((4,), (4,), 1),
    ((1,), (4,), 1),
    ((2, 3), (2, 3), 1),
    ((2, 3), (3,), 2),
    ((2, 1), (3,), 2),
    ((2, 3), (2, 1), 2),
    ((2, 1, 4), (3, 1), 6),
    ((1, 1), (1,), 1),
]


@pytest.mark.parametrize(("a", "b", "launches"), STACKS)
def test_operands_meet_as_numpy_broadcasts_them(
    a: tuple[int, ...], b: tuple[int, ...], launches: int
) -> None:
    c = np.broadcast_shapes(a, b)
    of_a, of_b = (
        np.broadcast_to(np.arange(np.prod(s, dtype=int)).reshape(s), c).ravel() for s in (a, b)
    )
    found = batches(a, b, c)
    assert len(found) == launches
    for some in found:
        for i in range(some.count):
            assert of_a[some.c + i] == some.a + (0 if some.shares_a else i)
            assert of_b[some.c + i] == some.b + (0 if some.shares_b else i)
    assert sorted(some.c + i for some in found for i in range(some.count)) == [*range(of_a.size)]


def test_a_stack_whose_axes_step_as_one_is_taken_without_a_copy() -> None:
    whole = np.zeros((4, 3, 2, 6, 5))
    found = set()
    for axes in permutations(range(5)):
        turned = whole.transpose(axes)
        repeated = np.broadcast_to(turned[:, :1], (turned.shape[0], 7, *turned.shape[2:]))
        for x in (turned, turned[1:2], turned[:, :2], turned[::2], turned[..., 1:], repeated):
            assert is_one_stack(x) == np.shares_memory(matrices(x), whole)
            found.add(is_one_stack(x))
    assert found == {True, False}


def test_a_stack_that_repeats_itself_is_taken_once() -> None:
    x = np.arange(24.0).reshape(2, 1, 3, 4)
    wide = np.broadcast_to(x, (2, 5, 3, 4))
    assert stack_sizes(wide) == (2, 1)
    assert matrices(wide).shape == (2, 3, 4)
    assert np.shares_memory(matrices(wide), x)
    np.testing.assert_array_equal(matrices(wide), x[:, 0])
