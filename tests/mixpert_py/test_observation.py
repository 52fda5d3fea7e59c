"""Observed values are what they were when they were observed."""

from typing import Any

import numpy as np
import pytest

import mixpert_py
from mixpert_py.execution import outputs
from mixpert_py.execution.outputs import observed


@pytest.fixture(autouse=True)
def _nothing_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "_observed", {})


@pytest.mark.parametrize(
    "value",
    [
        np.arange(4.0),
        np.arange(6.0).reshape(2, 3)[:, ::2],
        [1.0, [2.0, 3.0]],
        [np.zeros(2), np.ones(2)],
        {"a": np.zeros(2)},
        np.ma.masked_less(np.arange(3.0), 1),
    ],
)
def test_a_value_is_copied(value: Any) -> None:
    mixpert_py.observe("x", value)
    kept = repr(observed()["x"])
    assert kept == repr(value)
    inner = value["a"] if isinstance(value, dict) else value
    inner[-1] = inner[0] * 0 + 9 if not isinstance(inner, list) else 9
    assert repr(observed()["x"]) == kept != repr(value)


@pytest.mark.parametrize("value", [1.5, 3, np.float64(2), True, (1, 2), None, list, "text"])
def test_anything_may_be_observed(value: Any) -> None:
    mixpert_py.observe("x", value)
    assert observed() == {"x": value}


def test_the_last_value_of_a_name_wins() -> None:
    for value in (1.0, 2.0):
        mixpert_py.observe("loss", value)
    mixpert_py.observe("other", 3.0)
    assert observed() == {"loss": 2.0, "other": 3.0}
