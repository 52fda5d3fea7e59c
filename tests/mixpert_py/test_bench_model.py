"""What predictions come to beside measured times."""

import json

import pytest

from mixpert_py.bench import predictions


def row(measured: float, predicted: float, chosen: float, fixed: float, best: float) -> dict:
    tiles = {"a": chosen, "b": fixed, "c": best}
    return {
        "measured": measured,
        "predicted": predicted,
        "chosen": "a",
        "fixed": "b",
        "tiles": tiles,
    }


def test_a_summary_of_predictions() -> None:
    rows = [
        row(1.0, 1.1, 1.04, 1.0, 1.0),
        row(2.0, 2.0, 1.06, 1.2, 1.0),
        row(4.0, 3.0, 1.0, 1.3, 1.0),
    ]
    found = predictions.summary(rows)
    assert found["pairs"] == 3
    assert found["median error"] == pytest.approx(0.1)
    assert found["largest error"] == pytest.approx(0.25)
    assert found["model's tile near the quickest"] == pytest.approx(2 / 3)
    assert found["fixed tile near the quickest"] == pytest.approx(1 / 3)
    assert 0.9 < found["correlation"] < 1


def test_the_pairs_are_many_and_of_every_kind() -> None:
    pairs = predictions.PAIRS
    assert len(set(pairs)) == len(pairs) >= 60
    assert {max(p[1:4]) for p in pairs} >= {256, 16384}
    assert any(p.batch > 1 for p in pairs)
    assert any(p.m != p.n for p in pairs)


@pytest.mark.gpu
def test_predictions_of_a_few() -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    pairs = [predictions.Pair("int8x6", n, n, n) for n in (1024, 2048)]
    found = predictions.measure(pairs)
    assert found["median error"] < 0.5
    json.dumps(found)


def test_the_readmes_table() -> None:
    rows = [
        {**row(1.0, 1.1, 1.04, 1.0, 1.0), "m": 8, "k": 8, "n": 8, "batch": 1},
        {**row(2.0, 2.0, 1.06, 1.2, 1.0), "m": 8, "k": 9, "n": 8, "batch": 1},
        {**row(4.0, 3.0, 1.0, 1.3, 1.0), "m": 8, "k": 8, "n": 8, "batch": 5},
    ]
    where = {"device": "NVIDIA H200", "cupy": "14.2.0", "date": "2026-11-22"}
    table = predictions.markdown({"machine": where, **predictions.summary(rows), "rows": rows})
    assert "| n³ (1) | 10.0% | 10% | 100% of them | 100% of them |" in table
    assert "| stacks (1) | 25.0% | 25% | 100% of them | 0% of them |" in table
    assert "| all (3) |" in table
    assert "One NVIDIA H200" in table
