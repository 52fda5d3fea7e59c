"""How long a device was computing."""

from types import SimpleNamespace
from typing import Any

import pytest

from mixpert_py.runtime.gpu.event_clock import Busy


def busy(*moments: float) -> Busy:
    """Spans from each odd moment to the next, in milliseconds, as a device has seen them."""
    events = iter([SimpleNamespace(record=lambda: None, at=at) for at in moments])

    def elapsed(begin: Any, end: Any) -> float:
        return float(end.at - begin.at)

    it = Busy(
        SimpleNamespace(cuda=SimpleNamespace(Event=events.__next__, get_elapsed_time=elapsed))
    )
    for _ in range(len(moments) // 2):
        with it.span():
            pass
    return it


@pytest.mark.parametrize(
    ("moments", "milliseconds"), [((), 0), ((5, 10), 5), ((5, 10, 10, 12, 20, 30), 17)]
)
def test_it_is_the_time_within_spans(moments: tuple[float, ...], milliseconds: float) -> None:
    assert busy(*moments).seconds() == pytest.approx(milliseconds / 1000)
