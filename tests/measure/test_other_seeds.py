"""The programs of the plans that are judged on other seeds, and the figures of their table."""

import compileall
from pathlib import Path
from typing import Any

import pytest

from mixpert_py.errors import MixPertError
from tests.measure import other_seeds
from tests.measure.other_seeds import HARD, JUDGED, cases, chance, fewer, over, row, table


def test_every_program_is_public_or_ours() -> None:
    found = cases()
    assert len(found) == 25
    ours = {case.name for case in found if case.program is None}
    assert ours == {path.stem for path in HARD.glob("*.py")}
    assert len(ours) >= 10
    assert compileall.compile_dir(str(HARD), quiet=2)


def test_our_programs_get_their_seed(tmp_path: Path) -> None:
    case = next(case for case in cases() if case.name == "chaos")
    script, arguments = case.prepare(tmp_path / "chaos", None)
    assert script.read_bytes() == (HARD / "chaos.py").read_bytes()
    assert arguments == []


RESULT = {
    "case": {"error": "1e-4"},
    "rate": 0.05,
    "fewer": 2.0,
    "guarded": [0.5] * 54 + [1.5, 3.0, None, None, None, None],
    "plain": [0.5] * 60,
}


def test_a_rate_that_is_exceeded_is_unlikely() -> None:
    assert over(RESULT["guarded"]) == 6  # type: ignore[arg-type]
    assert chance(0, 60, 0.05) == pytest.approx(1.0)
    assert chance(1, 60, 0.05) == pytest.approx(1 - 0.95**60)
    found = row(RESULT)
    assert (found["guarded"], found["guarded worst"], found["plain"]) == (6, 3.0, 0)
    assert 0.05 < found["chance"] < 0.10  # 6 of 60 where 3 are expected
    assert row({**RESULT, "guarded": [2.0] * 60})["chance"] < 1e-6


def test_the_table_tells_programs_that_failed_or_stay_native(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results: list[dict[str, Any]] = [
        RESULT,
        {"case": {"error": "1e-4"}, "error": "exit 1"},
        {"case": {"error": "1e-4"}, "fewer": 1.0},
    ]
    programs = [{"name": f"p{i}", "address": "x", "result": it} for i, it in enumerate(results)]
    shown = table({"machine": {"date": "2026-01-01"}, "programs": programs})
    assert [cells[4] for cells in shown["rows"]] == ["6 of 60", "exit 1", other_seeds.NATIVE]
    assert "Of 1 plans 0 are over" in shown["text"]
    assert len(JUDGED) == 60


def test_a_plan_without_products_is_an_error_of_its_program() -> None:
    assert fewer({"time_before": 6, "time_after": 2}) == 3.0
    with pytest.raises(MixPertError, match="none with the plan"):
        fewer({"time_before": 6, "time_after": 0})
