"""Arrays that have memory in common, and those that only lie between one another."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from mixpert_py.runtime import overlap
from tests.runtime.gpu.fake import ndarray

WHOLE = np.zeros((60, 80))
APART = [
    (WHOLE[:, :20], WHOLE[:, 20:]),
    (WHOLE[30:, 40:60], WHOLE[30:, 20:40].T),
    (WHOLE[20:, 50:], WHOLE[:40, :50]),
    (WHOLE[:, ::2], WHOLE[:, 1::2]),
    (WHOLE[::-1, :8], WHOLE[:, 8:]),
    (WHOLE, WHOLE.copy()),
    (WHOLE[:, :0], WHOLE),
]
TOGETHER = [
    (WHOLE, WHOLE.T),
    (WHOLE[:, :21], WHOLE[:, 20:]),
    (WHOLE[30:], WHOLE[20:31, 79:]),
    (WHOLE[:, ::2], WHOLE[:, ::3]),
    (WHOLE, WHOLE.view(np.float32)[:, 1:2]),
]


@pytest.mark.parametrize("pairs", [APART, TOGETHER])
def test_what_shares(pairs: list[tuple[np.ndarray, np.ndarray]]) -> None:
    for x, y in pairs:
        assert overlap.shares(x, y) == overlap.shares(y, x) == (pairs is TOGETHER)
        assert overlap.shares_on_device(ndarray(x), ndarray(y)) == (pairs is TOGETHER)


def test_what_is_too_hard_to_tell_may_share(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = np.zeros(1 << 16, np.uint8)
    x, y = (
        as_strided(buffer, (7, 5, 6, 4, 3), strides)
        for strides in ((1011, 1213, 911, 1517, 2221), (997, 1301, 1409, 1103, 2003))
    )
    with pytest.raises(np.exceptions.TooHardError):
        np.shares_memory(x[1:, 1:], y[1:, 1:], max_work=1)
    monkeypatch.setattr(overlap, "WORK", 1)
    assert overlap.shares(x[1:, 1:], y[1:, 1:])
