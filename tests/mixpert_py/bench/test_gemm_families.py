"""The sections "families" of `mixpert bench gemm`: the default beside the vendor, without a GPU."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixpert_py.bench import machine, readme
from mixpert_py.bench.contract import LARGEST, ROUNDINGS, Sums, errors
from mixpert_py.bench.families import EVERYDAY, FAMILIES
from mixpert_py.bench.gemm import families, run, sizes, tables
from mixpert_py.bench.gemm import readme as gemm_readme
from mixpert_py.bench.gemm.contender import Contender
from mixpert_py.bench.gemm.result import Result, read
from mixpert_py.bench.judgement import UNIT, Exact
from mixpert_py.errors import MixPertError
from tests.mixpert_py.bench.fake_bench import FakeClock, bench

BASE = sizes.BASE
# Relative errors of all elements alike; the floor of 40³ "constant" operands is 3.5 u / √40.
FLOOR = ROUNDINGS * UNIT / math.sqrt(40)
WEIGHTS = {BASE: (6.0, 4e-6), "faithful": (1.0, 2e-6), "int8x6": (1.0, 3e-5), "fp16": (1.0, 1.0)}
MACHINE = {
    **dict.fromkeys(("driver", "cuda", "cublas", "cupy", "date"), "1"),
    "device": "NVIDIA H200",
}


def judged(weights: dict[str, tuple[float, float]] = WEIGHTS) -> dict[str, dict[str, Any]]:
    rows = families.section(bench(FakeClock(), weights), "constant", 40, 40, 40)
    return {row["name"]: row for row in rows}


def row(name: str, family: str = "normal", **more: Any) -> dict[str, Any]:
    """As `section` makes them."""
    made = {"name": name, "kind": "vendor" if "cuBLAS" in name else "scheme", "family": family}
    made |= {"m": 2048, "k": 2048, "n": 2048, "draws": 3, "terms": 830.4, "floor": 2.1e-7}
    made |= {"frobenius": 8.1e-7, "componentwise": 5.04}
    return made | {"frobenius_over": 1.0, "componentwise_over": 0.42} | more


def sections() -> dict[str, list[dict[str, Any]]]:
    ours = {"frobenius": 4.3e-7, "frobenius_over": 0.531, "componentwise_over": 0.108}
    lost = {"frobenius": 7.1e-2, "frobenius_over": 87_654.3, "componentwise_over": "inf"}
    return {
        "speed 8192": [
            {"name": name, "kind": "scheme", "m": 8192, "k": 8192, "n": 8192, "tflops": 50.0}
            for name in (BASE, "faithful", "int8x6", "int8x1")
        ],
        "accuracy normal 8192": [
            {"name": name, "kind": "scheme", "m": 8192, "k": 8192, "n": 8192, "family": "normal"}
            | {"frobenius": 1e-6, "grade": "BC"}
            for name in (BASE, "faithful", "int8x6", "int8x1")
        ],
        "families normal 2048": [
            row(BASE),
            row("faithful", ran=["fp16x3"], componentwise=1.3, **ours),
            row("int8x6", ran=["native (too small)", "int8x6"], **ours),
        ],
        "families features 1e±3 2048": [
            row(BASE, "features 1e±3"),
            row("faithful", "features 1e±3", **{**ours, "frobenius_over": 1.0001}),
            row("int8x6", "features 1e±3", componentwise="inf", **lost),
        ],
    }


class TestSection:
    def test_errors_of_all_draws_over_what_is_allowed(self) -> None:
        found = judged()
        assert list(found) == [BASE, "faithful", "int8x6"]  # fp16 is not judged so
        vendor, faithful, int8x6 = found.values()
        assert [vendor["kind"], faithful["kind"]] == ["vendor", "scheme"]
        assert faithful["frobenius"] == pytest.approx(2e-6, rel=0.1)
        assert faithful["componentwise"] == pytest.approx(2e-6 / UNIT, rel=0.1)
        assert faithful["frobenius_over"] == pytest.approx(0.5, rel=0.1)
        assert int8x6["frobenius_over"] == pytest.approx(7.5, rel=0.1)
        assert vendor["frobenius_over"] == vendor["componentwise_over"] == 1.0
        assert int8x6["componentwise_over"] == pytest.approx(7.5, rel=0.1)
        assert faithful["terms"] == pytest.approx(40)
        assert faithful["floor"] == pytest.approx(FLOOR, rel=1e-6)
        assert (faithful["m"], faithful["k"], faithful["n"], faithful["draws"]) == (40, 40, 40, 3)
        assert faithful["ran"] == ["native (no tensor core)"]  # NumPy operands
        assert "ran" not in vendor

    def test_floors(self) -> None:
        """A vendor that is all but exact: what is allowed does not go below the floors."""
        found = judged({**WEIGHTS, BASE: (6.0, 0.0)})
        own = found["int8x6"]
        assert own["frobenius_over"] == pytest.approx(3e-5 / FLOOR, rel=0.1)
        assert own["componentwise_over"] == pytest.approx(3e-5 / UNIT / LARGEST, rel=0.1)

    def test_the_worst_draw_decides_and_is_compared_by_itself(self) -> None:
        """Each draw's error is that many times its own vendor's."""
        made = bench(FakeClock(), WEIGHTS)
        own, theirs = iter((1e-6, 6e-6, 2e-6)), iter((4e-6, 8e-6, 1e-6))
        contenders = {
            name: changing(name, errors) for name, errors in ((BASE, theirs), ("fp16x3", own))
        }
        found = families.section(replace(made, contenders=contenders), "constant", 40, 40, 40)
        assert found[1]["frobenius"] == pytest.approx(6e-6, rel=0.1)
        assert found[1]["frobenius_over"] == pytest.approx(2, rel=0.1)
        assert found[0]["frobenius_over"] == 1.0

    def test_draws_differ_and_all_contenders_get_the_same(self) -> None:
        seen: list[Any] = []
        made = bench(FakeClock(), WEIGHTS)

        def watched(one: Contender) -> Contender:
            def prepare(a: Any, b: Any) -> Any:
                seen.append(a)
                return one.prepare(a, b)

            return replace(one, prepare=prepare)

        contenders = {name: watched(one) for name, one in made.contenders.items()}
        families.section(replace(made, contenders=contenders), "permuted", 6, 7, 8)
        assert len(seen) == 3 * 3
        for first in (0, 3, 6):
            assert seen[first] is seen[first + 1] is seen[first + 2]
            assert not np.array_equal(seen[first], seen[first - 1])

    def test_one_that_fails_leaves_the_others(self) -> None:
        made = bench(FakeClock(), WEIGHTS)

        def fail(a: Any, b: Any) -> Any:
            raise MixPertError("no\nkernel")

        broken = {**made.contenders, "int8x6": Contender("int8x6", "scheme", fail)}
        found = families.section(replace(made, contenders=broken), "normal", 9, 8, 7)
        assert [one.get("failed") for one in found] == [None, None, "MixPertError: no"]
        assert "frobenius" not in found[2]

    def test_the_vendor_has_to_be_there(self) -> None:
        with pytest.raises(KeyError, match=BASE):
            judged({"faithful": (1.0, 0.0)})

    @pytest.mark.parametrize("family", {**FAMILIES, **EVERYDAY})
    def test_a_vendor_as_good_as_float32_holds_the_contract(self, family: str) -> None:
        a, b = bench(FakeClock(), {}).operands(24, 60, 20, family)
        exact = Exact.of(a, b)
        vendor = errors(exact, a @ b)
        found = errors(exact, exact.product.astype(np.float32)).over(vendor, Sums.of(exact).floor)
        assert max(found.frobenius, found.componentwise) <= 1

    def test_names(self) -> None:
        found = families.sections(bench(FakeClock(), {}), ["normal", "huge entry"], 8)
        assert list(found) == ["families normal 8", "families huge entry 8"]


def changing(name: str, found: Any) -> Contender:
    """A contender whose relative error is another one in every call that prepares it."""

    def prepare(a: Any, b: Any) -> Any:
        made = bench(FakeClock(), {name: (1.0, next(found))})
        return made.contenders[name].prepare(a, b)

    return Contender(name, "vendor", prepare)


class TestWorst:
    def test_of_all_families(self) -> None:
        assert families.worst(sections()) == {BASE: 1.0, "faithful": 1.0001, "int8x6": 87_654.3}

    def test_what_failed_has_none(self) -> None:
        found = sections()
        found["families x 2048"] = [row(BASE), row("faithful") | {"failed": "boom"}]
        assert families.worst(found).keys() == {BASE, "int8x6"}

    def test_infinity_is_a_word(self) -> None:
        assert families.worst({"families x": [row("int8x6", frobenius_over="inf")]}) == {
            "int8x6": math.inf
        }

    def test_nothing_was_judged(self) -> None:
        assert families.worst({"speed 8192": sections()["speed 8192"]}) == {}


class TestTables:
    def test_a_row_a_family(self) -> None:
        columns, rows = tables.families(families.rows_of(sections()))
        assert columns == [
            *("data", "m × k × n", "terms", "floor", BASE, "faithful", "int8x6"),
            *("faithful over allowed: norm", "largest"),
        ]
        assert rows == [
            [
                *("normal", "2048³", "830", "2.1e-07", "8.1e-07 (5.0 u)", "4.3e-07 (1.3 u)"),
                *("4.3e-07 (5.0 u) native", "0.54×", "0.11×"),
            ],
            [
                *("features 1e±3", "2048³", "830", "2.1e-07", "8.1e-07 (5.0 u)"),
                *("4.3e-07 (5.0 u)", "7.1e-02 (inf u)", "1.01×", "0.11×"),
            ],
        ]

    def test_what_failed_or_is_missing(self) -> None:
        failed = {**row("faithful"), "failed": "boom"}
        for name in ("frobenius", "componentwise", "frobenius_over", "componentwise_over"):
            del failed[name]
        _, rows = tables.families([row(BASE), failed, row(BASE, "x"), row("fp16x3", "x")])
        assert [line[4:] for line in rows] == [
            ["8.1e-07 (5.0 u)", "failed", "–", "–", "–"],
            ["8.1e-07 (5.0 u)", "–", "8.1e-07 (5.0 u)", "–", "–"],
        ]

    @pytest.mark.parametrize(
        ("ratio", "text"),
        [
            *((None, "–"), (0.0, "0.00×"), (1.0, "1.00×"), (1.0001, "1.01×"), (1.29, "1.29×")),
            *((23.4, "23×"), (87_654.3, "87,654×"), ("inf", "inf×")),
        ],
    )
    def test_times(self, ratio: float | str | None, text: str) -> None:
        assert tables.times(ratio) == text


class TestReadme:
    def test_the_column_of_the_grade_table(self) -> None:
        found = {"suite": "sizes", "machine": MACHINE, "sections": sections()}
        text = gemm_readme.sizes_markdown(found, "docs")
        assert "| error at 8192³ | grades | worst of all families over cuBLAS FP32 |\n" in text
        assert "| faithful | 50 | 1.0e-06 | BC | 1.01× |\n" in text
        assert "| int8x6 | 50 | 1.0e-06 | BC | 87,654× |\n" in text
        assert "| int8x1 | 50 | 1.0e-06 | BC | – |\n" in text
        assert "; the worst error of all families over that of cuBLAS FP32, or over 3.5 u" in text

    def test_no_family_was_judged(self) -> None:
        found = {name: rows for name, rows in sections().items() if "families" not in name}
        text = gemm_readme.speed_table(found)
        assert "| int8x6 | 50 | 1.0e-06 | BC |\n" in text
        assert "worst of all" not in text

    def test_the_table_of_families(self) -> None:
        found = {"suite": "sizes", "machine": MACHINE, "sections": sections()}
        lines = gemm_readme.families_markdown(found).splitlines()
        assert lines[0].startswith("| data | m × k × n | terms | floor | cuBLAS FP32 | faithful |")
        assert lines[3].startswith("| features 1e±3 | 2048³ | 830 | 2.1e-07 | 8.1e-07 (5.0 u) |")
        assert "the worst of 3 draws" in lines[-1]
        assert lines[-1].endswith("CuPy 1, 1.")
        assert {line.count("|") for line in lines[:4]} == {10}

    def test_results_of_any_kind_alone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As a run of `--only` leaves them, or none at all."""
        saved = gemm_readme.saved
        monkeypatch.setattr(gemm_readme, "saved", lambda suite: saved(suite, tmp_path))
        assert (gemm_readme.families_part(), gemm_readme.sizes_part("docs")) == (None, None)
        gemm_readme.draw(tmp_path)
        result = Result("sizes", MACHINE, tmp_path / "gemm.json", False)
        result.sections.update({n: r for n, r in sections().items() if "families" in n})
        result.write()
        assert gemm_readme.sizes_part("docs") is None
        assert "features 1e±3" in (gemm_readme.families_part() or "")
        gemm_readme.draw(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["gemm.json"]
        del result.sections["families normal 2048"], result.sections["families features 1e±3 2048"]
        result.sections.update({n: r for n, r in sections().items() if "speed" in n})
        result.write()
        assert gemm_readme.families_part() is None
        assert "| int8x6 | 50 |" in (gemm_readme.sizes_part("docs") or "")

    def test_it_is_a_part(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gemm_readme, "families_part", lambda: "a table\n")
        assert readme.parts()["families"] == "a table\n"


class TestRun:
    """`mixpert bench gemm --only families --resume`, on the bench without a GPU."""

    def test_only_families(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        made = bench(FakeClock(), WEIGHTS)
        monkeypatch.setattr(machine, "gpu", lambda: np)
        monkeypatch.setattr(machine, "device", lambda xp: MACHINE)
        monkeypatch.setattr(sizes, "standard", lambda *asked: (made, {}))
        path = tmp_path / "r.json"
        result = Result("sizes", MACHINE, path, False)
        result.sections["speed 8192"] = []
        result.write()
        options = run.Options("sizes", error_size=16)
        assert run.run(options, path, ["families"], resume=True) == 0
        names = [f"families {family} 16" for family in (*FAMILIES, *EVERYDAY)]
        out, err = capsys.readouterr()
        assert list(read(path)["sections"]) == ["speed 8192", *names]
        assert "Infinity" not in json.dumps(read(path)["sections"])
        assert err.splitlines() == names
        assert re.search(r"constant +16³ +16 +\d\.\de-08 +\S+ \(\d+\.\d u\) +2\.\de-06", out)
        assert run.run(options, path, ["families"], resume=True) == 0
        assert capsys.readouterr().err == ""

    def test_some_families(self) -> None:
        made = bench(FakeClock(), WEIGHTS)
        options = run.Options("sizes", ((8, 8, 8),), families=("huge entry",), error_size=16)
        run.check(options)
        assert list(run.chosen(made, options)) == [
            *("speed 8", "accuracy huge entry 16", "accuracy normal 8", "families huge entry 16")
        ]
