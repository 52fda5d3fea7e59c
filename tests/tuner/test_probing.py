"""Which operators are probed together."""

import pytest

from mixpert_py.tuner.predictive import probe_groups


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        pytest.param({}, [], id="none"),
        pytest.param({"a": 60.0, "b": 40.0}, [("a",), ("b",)], id="long-ones-alone"),
        pytest.param({"b": 40.0, "a": 60.0}, [("a",), ("b",)], id="the-longest-first"),
        pytest.param({"a": 60.0, "b": 4.0}, [("a",)], id="not-worth-a-probe"),
        pytest.param(
            {"a": 60.0, "b": 7.0, "c": 6.0},
            [("a",), ("b", "c"), ("b",), ("c",)],
            id="short-ones-together-and-then-halves",
        ),
        pytest.param(
            {"a": 4.0, "b": 4.0, "c": 4.0, "d": 3.0},
            [("a", "b", "c", "d"), ("a", "b"), ("c", "d")],
            id="no-half-that-is-not-worth-it",
        ),
        pytest.param({"a": 60.0, "b": 3.0, "c": 3.0}, [("a",), ("b", "c")], id="the-rest"),
    ],
)
def test_groups(times: dict[str, float], expected: list[tuple[str, ...]]) -> None:
    assert list(probe_groups(times, 100.0)) == expected
