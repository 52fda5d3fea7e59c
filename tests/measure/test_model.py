"""The summary of predictions beside measured times."""

import json

import pytest

from mixpert_py.bench import machine
from mixpert_py.runtime.model.kernel_times import KernelTimes
from mixpert_py.runtime.model.known_devices import find
from tests.measure import model as predictions


def row(measured: float, predicted: float, chosen: float, fixed: float, best: float) -> dict:
    tiles = {"a": chosen, "b": fixed, "c": best}
    return {
        "measured": measured,
        "predicted": predicted,
        "chosen": "a",
        "legemm": "b",
        "egemm": "c",
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
    near, times = found["near the quickest"], found["times the quickest"]
    assert near == pytest.approx({"chosen": 2 / 3, "legemm": 1 / 3, "egemm": 1, "fixed": 1 / 3})
    assert times["chosen"] == pytest.approx((1.04 * 1.06) ** (1 / 3))
    assert times["fixed"] == times["legemm"] == pytest.approx((1.2 * 1.3) ** (1 / 3))
    assert times["egemm"] == 1
    assert 0.9 < found["correlation"] < 1


def test_the_papers_tiles_in_the_results_are_those_that_their_models_take() -> None:
    results = json.loads((machine.RESULTS / "model.json").read_text("utf-8"))
    times = KernelTimes(find(results["machine"]["device"]))
    for row in results["rows"]:
        pair = predictions.Pair(*(row[field] for field in predictions.Pair._fields))
        taken = predictions.choices(times, pair)
        # Ours goes by kernels' times, which may have been measured again since.
        assert {row[key] for key in taken} <= set(row["tiles"])
        if pair.scheme == "bf16x6":
            continue  # measured when it had one accumulator, which leaves room for other tiles
        assert {key: row[key] for key in taken if key != "chosen"} == {
            key: tile for key, tile in taken.items() if key != "chosen"
        }


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
    table = predictions.table({"machine": where, **predictions.summary(rows)}, rows)
    assert table["columns"][3:] == [
        "tile of our model",
        "after LE-GEMM",
        "after EGEMM-TC",
        "one tile",
    ]
    assert table["rows"][0] == ["n³ (1)", "10.0%", "10%", "100%, 1.04×", *["100%, 1.00×"] * 3]
    assert table["rows"][2] == [
        *("stacks (1)", "25.0%", "25%", "100%, 1.00×", "0%, 1.30×", "100%, 1.00×", "0%, 1.30×"),
    ]
    assert table["rows"][3][0] == "all (3)"
    assert "One NVIDIA H200" in table["text"]


def test_the_kept_table_is_that_of_the_kept_rows() -> None:
    kept = json.loads((machine.RESULTS / "model.json").read_text("utf-8"))
    assert kept["table"] == predictions.table(kept, kept["rows"])
