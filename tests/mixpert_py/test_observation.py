"""Observed values are what they were when they were observed."""

import numpy as np
import pytest

import mixpert_py
from mixpert_py.execution import outputs
from mixpert_py.execution.outputs import observed


def test_the_last_value_of_a_name_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "_observed", {})
    given = [np.arange(4.0), [1.0, [2.0]], [np.zeros(2)], {"a": np.zeros(2)}, 1.5, None, list]
    for value in (given, *given):
        mixpert_py.observe("x", value)
        kept = repr(observed()["x"])
        assert kept == repr(value)
        if isinstance(value, list | np.ndarray):
            value[-1] = 9
            assert repr(observed()["x"]) == kept != repr(value)
