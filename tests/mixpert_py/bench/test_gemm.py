"""`mixpert bench gemm`: what it computes from times and products, without a GPU."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixpert_py.bench import machine
from mixpert_py.bench.gemm import first_call, ours, targets
from mixpert_py.bench.gemm import run as gemm_run
from mixpert_py.bench.gemm import sizes as gemm
from mixpert_py.bench.gemm import tables as gemm_tables
from mixpert_py.bench.gemm.contender import calls
from mixpert_py.bench.gemm.first_call import FirstCall
from mixpert_py.bench.gemm.result import Result, read
from mixpert_py.bench.gemm.targets import Target, once
from mixpert_py.bench.judgement import Exact, Judgement, judge
from mixpert_py.bench.timing import ratio, timing
from mixpert_py.errors import MixPertError
from mixpert_py.runtime.gpu import break_even
from mixpert_py.runtime.gpu.event_clock import MOST_CALLS, SAMPLE, Sample, in_turn
from tests.mixpert_py.bench.fake_bench import FakeClock, bench, weighted
from tests.mixpert_py.command import Mixpert
from tests.runtime.gpu.fake import FakeGpu, pays_from

NATIVE = "int8x6: native (no tensor core)"  # what ours are on NumPy arrays
MACHINE = {"device": "a GPU"}
WEIGHTS = {
    "cuBLAS FP32": (6.0, 1e-7),
    "cuBLAS TF32": (1.5, 1e-4),
    "int8x6": (1.0, 1e-7),
    "int8x3": (0.5, 1e-5),
    "fp16x3": (1.2, 1e-7),
    "legemm": (1.4, 1e-7),
    "egemm": (2.5, 1e-7),
    "mixpert-IV": (3.0, 1e-7),
    "faithful": (1.5, 0.0),
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets at sizes that NumPy multiplies at once."""
    monkeypatch.setattr(targets, "CUBE", (16, 16, 16))
    monkeypatch.setattr(targets, "FULL", 16)
    monkeypatch.setattr(targets, "BATCH", (3, 8))
    monkeypatch.setattr(targets, "LENGTHS", (8, 16))
    monkeypatch.setattr(
        first_call, "measure", lambda scheme: FirstCall(once(1.0), f"{scheme} in a fake process")
    )


class TestClock:
    def test_calls_take_turns(self) -> None:
        clock = FakeClock()
        one, other = weighted(lambda: 1, 1), weighted(lambda: 2, 2)
        samples = in_turn(clock, {"one": one, "other": other}, 3)
        assert clock.taken[-6:] == [one, other] * 3
        assert [sample.device for sample in samples["other"]] == [2e-3] * 3

    @pytest.mark.parametrize(("seconds", "calls"), [(1e-2, 1), (SAMPLE / 8, 8), (1e-9, MOST_CALLS)])
    def test_short_calls_are_repeated(self, seconds: float, calls: int) -> None:
        asked: list[tuple[int, float]] = []

        class Counting(FakeClock):
            def sample(self, call: Any, calls: int, lead: float) -> Sample:
                asked.append((calls, lead))
                return super().sample(call, calls, lead)

        in_turn(Counting(seconds), {"x": lambda: None}, 2)
        assert [count for count, _ in asked[-2:]] == [calls] * 2
        assert asked[-1][1] > 2 * calls * 1e-5  # the queue is ahead of the device

    def test_figures(self) -> None:
        slow = [Sample(float(t), 1e-5, t != 8) for t in (4, 6, 8)]
        fast = [Sample(float(t), 1e-5, True) for t in (2, 2, 1)]
        assert timing(slow)["median"] == 6
        assert timing(slow)["ahead"] == pytest.approx(2 / 3)
        assert timing(slow)["host"] == 1e-5
        assert ratio(slow, fast)["median"] == 3  # of 2, 3 and 8: each round by itself


class TestSizes:
    def test_speed(self) -> None:
        rows = gemm.speed(bench(FakeClock(), WEIGHTS), 10, 20, 30)
        assert [row["name"] for row in rows] == list(WEIGHTS)
        vendor, ours = rows[0], rows[2]
        assert ours["speedup"]["median"] == 6
        assert ours["tflops"] == pytest.approx(2 * 10 * 20 * 30 / 1e-3 / 1e12)
        assert ours["packing"]["median"] == 0.25e-3
        assert ours["gemm"]["median"] == 0.5e-3
        assert ours["ran"] == "native (no tensor core)"  # NumPy operands, no backend asked for
        assert "packing" not in vendor

    def test_one_that_fails_leaves_the_others(self) -> None:
        made = bench(FakeClock(), WEIGHTS)

        def fail(a: Any, b: Any) -> Any:
            raise MixPertError("no\nkernel")

        broken = {**made.contenders, "int8x6": gemm.Contender("int8x6", "scheme", fail)}
        made = gemm.Bench(np, made.clock, broken, 2)
        for rows in (gemm.speed(made, 4, 4, 4), gemm.accuracy(made, "normal", 4, 4, 4)):
            assert [row["name"] for row in rows if "failed" in row] == ["int8x6"]
            assert rows[2]["failed"] == "MixPertError: no"

    def test_accuracy(self) -> None:
        rows = gemm.accuracy(bench(FakeClock(), {"int8x3": (1.0, 1e-3)}), "normal", 20, 30, 10)
        (row,) = rows
        assert row["frobenius"] == pytest.approx(1e-3, rel=1e-3)
        assert row["max_relative"] == pytest.approx(0.5e-3, rel=1e-2)
        assert row["mred"] == pytest.approx(1e-3, rel=1e-2)
        assert row["grade"] == ""

    def test_what_overflows_is_a_word_in_json(self) -> None:
        a = np.full((2, 3), 2.0)
        exact = Exact.of(a, a.T)
        record = judge(exact, np.full((2, 2), np.inf, np.float32)).record()
        assert record["frobenius"] == record["max"] == "inf"
        assert record["grade"] == ""
        row = {"name": "x", "m": 2, "k": 3, "n": 2, "family": "normal", **record}
        assert gemm_tables.accuracy_rows([row])[0][3:5] == ["inf", "inf"]

    def test_nothing_is_no_error(self) -> None:
        empty = Exact.of(np.zeros((0, 3)), np.zeros((3, 2)))
        assert judge(empty, np.zeros((0, 2))) == Judgement(0.0, 0.0, 0.0, 0.0, "ABC")
        zero = Exact.of(np.zeros((2, 3)), np.zeros((3, 2)))
        assert judge(zero, np.zeros((2, 2))) == Judgement(0.0, 0.0, 0.0, 0.0, "ABC")
        assert judge(zero, np.ones((2, 2))).frobenius == np.inf

    def test_operands_depend_on_the_shape_alone(self) -> None:
        made = bench(FakeClock(), {})
        for one, other in zip(made.operands(5, 6, 7), made.operands(5, 6, 7), strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == np.float32
        a, b = made.stacks(3, 4, 5, 6)
        assert (a.shape, b.shape) == ((3, 4, 5), (3, 5, 6))

    def test_sections(self) -> None:
        names = gemm.sections(bench(FakeClock(), {}), [(8, 8, 8), (4, 8, 12)], ["normal"], 8)
        assert list(names) == [
            "speed 8",
            "speed 4x8x12",
            "accuracy normal 8",
            "accuracy normal 4x8x12",
        ]


class TestOurs:
    """Our own contender, on a GPU that is not there."""

    def test_parts_of_a_product(self, monkeypatch: pytest.MonkeyPatch) -> None:
        gpu = FakeGpu()
        cupy = gpu.install(monkeypatch)
        known = pays_from(600**3, 64.0)
        monkeypatch.setattr(break_even, "figures", lambda device: known)
        normal = np.random.default_rng(1).standard_normal
        a, b = (cupy.asarray(normal((2, 600, 600)).astype(np.float32)) for _ in range(2))
        parts = ours.contender("int8x6").prepare(a, b)
        assert gpu.launches == []
        parts.gemm()  # type: ignore[misc]
        assert gpu.launches == [(2, 600, 600)]
        parts.packing()  # type: ignore[misc]
        assert parts.whole().dtype == np.float32
        assert ours.ran(a, b, "int8x6") == "int8x6"
        small = cupy.asarray(np.ones((4, 4), np.float32))
        assert ours.ran(small, small, "int8x6") == "native (too small)"

    def test_what_is_no_emulation_has_no_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cupy = FakeGpu().install(monkeypatch)
        a = cupy.asarray(np.ones((8, 8), np.float32))
        assert list(calls({"f": ours.contender("faithful").prepare(a, a)})) == ["f"]
        assert list(calls({"x": ours.contender("int8x6").prepare(a, a)})) == [
            *("x", "x packing", "x gemm")
        ]


class TestTargets:
    def test_every_line_of_the_table_is_measured(self, small: None) -> None:
        made = bench(FakeClock(), WEIGHTS)
        skipped = ("int8x6", "faithful", "skewed", "wide-range")  # at sizes that need a GPU
        rows = {
            name: section()
            for name, section in targets.sections(made).items()
            if name not in skipped
        }
        assert list(rows) == [
            *("kernel", "tf32", "papers", "batched", "layouts", "packing", "accuracy", "host")
        ]
        measured = [row for found in rows.values() for row in found]
        assert not [row["detail"] for row in measured if row["measured"] is None]
        assert [row["met"] for row in rows["papers"]] == [True, True, False, True]  # 5, 4.3, 2.4, 2
        assert [row["met"] for row in rows["tf32"]] == [True, True]
        assert len(rows["accuracy"]) == 6

    def test_speed_over_fp32(self) -> None:
        section = targets.over_fp32("x", "int8x6", {(8, 8, 8): 5.0, (4, 8, 12): 7.0})
        rows = section(bench(FakeClock(), WEIGHTS))
        assert [row["at"] for row in rows] == ["8³", "4 × 8 × 12"]
        assert [row["met"] for row in rows] == [True, False]
        assert rows[0]["measured"]["median"] == 6
        assert "ran native (no tensor core)" in rows[0]["detail"]

    def test_what_cannot_be_measured_is_not_met(self) -> None:
        rows = targets.over_fp32("x", "int8x6", {(8, 8, 8): 5.0})(bench(FakeClock(), {}))
        assert rows[0]["measured"] is None
        assert not rows[0]["met"]
        assert rows[0]["detail"] == "KeyError: 'cuBLAS FP32'"

    @pytest.mark.parametrize(
        ("sense", "value", "met"), [("≥", 5.0, True), ("≥", 4.9, False), ("≤", 5.1, False)]
    )
    def test_met(self, sense: Any, value: float, met: bool) -> None:
        assert Target("s", "w", "a", sense, 5.0, "×").row(once(value))["met"] is met

    def test_the_first_call_of_a_process(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(first_call, "PROGRAM", "print('[3.0, 0.25, 0.5, 0.001]')")
        found = first_call.measure("int8x6", runs=2)
        assert found.call["median"] == 0.75
        assert found.detail.startswith("import 0.25 s, call 0.50 s, the next 1.0 ms")

    def test_a_process_that_fails_says_why(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(first_call, "PROGRAM", "raise OSError('no driver')")
        with pytest.raises(MixPertError, match="fresh process: OSError: no driver"):
            first_call.measure("int8x6")


class TestResult:
    def run(self, result: Result, made: list[str], *only: str) -> None:
        def section(name: str) -> Any:
            def rows() -> list[dict[str, Any]]:
                made.append(name)
                if name == "bad":
                    raise MixPertError("boom")
                return [{"name": name}]

            return rows

        said: list[str] = []
        names = ("one", "bad", "two")
        result.run({name: section(name) for name in only or names}, said.append)
        if not only:
            assert "bad: MixPertError: boom" in said

    def test_it_is_written_after_every_section_and_goes_on(self, tmp_path: Path) -> None:
        path = tmp_path / "r.json"
        made: list[str] = []
        self.run(Result("sizes", MACHINE, path, False), made, "one")
        assert list(read(path)["sections"]) == ["one"]
        again = Result("sizes", MACHINE, path, True)
        self.run(again, made)
        assert made == ["one", "bad", "two"]
        assert read(path) == json.loads(json.dumps(again.record))
        assert list(again.sections) == ["one", "two"]

    def test_another_suite_or_device_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "r.json"
        Result("sizes", MACHINE, path, False).write()
        for suite, device in (("targets", "a GPU"), ("sizes", "another")):
            with pytest.raises(MixPertError, match="another suite or device"):
                Result(suite, {"device": device}, path, True)

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"suite": "sizes"}'])
    def test_what_is_no_result(self, text: str, tmp_path: Path) -> None:
        path = tmp_path / "r.json"
        path.write_text(text)
        with pytest.raises(MixPertError, match=r"r\.json: not a result"):
            read(path)


class TestTables:
    def test_speed(self) -> None:
        made = bench(FakeClock(), {"cuBLAS FP32": (6.0, 0.0), "int8x6": (1.0, 0.0)})
        rows = gemm_tables.speed_rows(gemm.speed(made, 100, 100, 100))
        assert rows == [
            ["cuBLAS FP32", "100³", "6.000", "6.000–6.000", "", "", "0", "1.00", "10"],
            [NATIVE, "100³", "1.000", "1.000–1.000", "0.250", "0.500", "0", "6.00", "10"],
        ]

    def test_a_device_that_waits_is_marked(self) -> None:
        row = gemm.speed(bench(FakeClock(), {"int8x6": (1.0, 0.0)}), 8, 8, 8)[0]
        row["seconds"]["ahead"] = 0.5
        assert gemm_tables.speed_rows([row])[0][-1] == "10 †"

    def test_failures_are_shown(self) -> None:
        row = {"name": "x", "m": 1, "k": 2, "n": 3, "family": "normal", "failed": "boom"}
        assert gemm_tables.speed_rows([row]) == [["x", "1 × 2 × 3", "boom"]]
        assert gemm_tables.accuracy_rows([row]) == [["x", "normal", "1 × 2 × 3", "boom"]]

    def test_accuracy(self) -> None:
        made = bench(FakeClock(), {"int8x6": (1.0, 1e-3)})
        ((name, family, shape, frobenius, *_, grade),) = gemm_tables.accuracy_rows(
            gemm.accuracy(made, "normal", 50, 50, 50)
        )
        assert (name, family, shape, frobenius) == (NATIVE, "normal", "50³", "1.0e-03")
        assert grade == "–"

    def test_targets(self) -> None:
        target = Target("s", "what", "8³", "≥", 5.0, "×")
        spread = {"median": 5.111, "lower": 5.0, "upper": 5.2, "runs": 3}
        rows = [target.row(spread), target.row(once(4.0)), target.missing("why")]
        assert gemm_tables.target_rows(rows) == [
            ["what", "8³", "5.11 × (5–5.2)", "≥ 5 ×", "met"],
            ["what", "8³", "4 ×", "≥ 5 ×", "missed"],
            ["what", "8³", "–", "≥ 5 ×", "why"],
        ]
        text = gemm_tables.markdown(("a", "b"), [["1", "2"]])
        assert text == "| a | b |\n| --- | --- |\n| 1 | 2 |"


class TestRun:
    """The whole command, on the bench without a GPU."""

    @pytest.fixture
    def run(self, monkeypatch: pytest.MonkeyPatch, small: None) -> Callable[..., int]:
        made = bench(FakeClock(), WEIGHTS)
        monkeypatch.setattr(gemm, "SIZES", (8, 12))
        monkeypatch.setattr(machine, "gpu", lambda: np)
        monkeypatch.setattr(machine, "device", lambda xp: MACHINE)
        missing = {"cuBLAS BF16x9": "not offered: no such thing"}
        monkeypatch.setattr(gemm, "standard", lambda *asked: (made, missing))

        def call(suite: str, path: Path | None, *only: str, resume: bool = False) -> int:
            return gemm_run.run(gemm_run.Options(suite, error_size=8), path, only, resume)

        return call

    def test_sizes(
        self, run: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "r.json"
        assert run("sizes", path, "speed", "accuracy normal") == 0
        found = read(path)
        assert list(found["sections"]) == [
            *("speed 8", "speed 12", "accuracy normal 8", "accuracy normal 12")
        ]
        assert found["machine"]["not offered"] == {"cuBLAS BF16x9": "not offered: no such thing"}
        out, err = capsys.readouterr()
        assert re.search(
            r"int8x6: native \(no tensor core\) +12³ +1\.000 +1\.000–1\.000 +0\.250 +0\.500", out
        )
        assert re.search(r"int8x3: native \(no tensor core\) +normal +8³ +1\.0e-05", out)
        assert out.endswith("cuBLAS BF16x9: not offered: no such thing\n")
        assert err.splitlines() == list(found["sections"])
        assert run("sizes", path, "speed", "accuracy normal", resume=True) == 0
        assert capsys.readouterr().err == ""

    def test_targets(self, run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
        assert run("targets", None, "tf32", "layouts") == 0
        out = capsys.readouterr().out
        assert re.search(r"int8x3 over cuBLAS TF32 +16³ +3 × +≥ 1\.3 × +met +cuBLAS TF32 1\.5", out)
        assert re.search(r"layouts apart +16³ +0 % +≤ 5 % +met +NN 1\.000 ms, NT", out)

    def test_a_section_that_fails_is_an_exit_code(
        self, run: Callable[..., int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(made: object) -> list[dict[str, Any]]:
            raise MixPertError("boom")

        monkeypatch.setitem(targets.MEASURES, "tf32", fail)
        assert run("targets", None, "tf32", "layouts") == 1

    def test_sections_are_named(
        self, run: Callable[..., int], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run("targets", None, "list") == 0
        assert capsys.readouterr().out.split() == list(targets.MEASURES)
        with pytest.raises(MixPertError, match="unknown section 'x'; `--only list` names them"):
            run("targets", None, "x")


class TestCommand:
    @pytest.mark.parametrize("suite", ["sizes", "targets"])
    def test_without_a_gpu(self, mixpert: Mixpert, suite: str) -> None:
        said = mixpert("bench", "gemm", "--suite", suite, CUDA_VISIBLE_DEVICES="")
        assert said.code == 2
        assert "runs on a GPU" in said.one_clear_line()

    @pytest.mark.parametrize(
        ("option", "value", "line"),
        [
            ("--scheme", "int9", "unknown scheme 'int9'"),
            ("--mode", "cuBLAS FP8", "unknown mode 'cuBLAS FP8'"),
            ("--family", "odd", "unknown family 'odd'"),
        ],
    )
    def test_unknown_names(self, mixpert: Mixpert, option: str, value: str, line: str) -> None:
        said = mixpert("bench", "gemm", option, value)
        assert said.code == 2
        assert line in said.one_clear_line()

    @pytest.mark.parametrize("size", ["0", "x", "1x2", "4x-1x3", ""])
    def test_no_size(self, mixpert: Mixpert, size: str) -> None:
        said = mixpert("bench", "gemm", "--size", size)
        assert said.code == 2
        assert "is no N or MxKxN" in said.err
