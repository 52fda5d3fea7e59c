"""`python -m tests.soak`: every gate passes in its short version, and fails where it has to."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from threading import current_thread, main_thread
from time import sleep
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mixpert_py import plan as plan_file
from mixpert_py.bench import machine
from mixpert_py.bench.arrays import Array
from mixpert_py.bench.readme import gates_markdown
from mixpert_py.errors import MixPertError, PlanError
from mixpert_py.plan import Plan
from tests.every_check import EVERY_CHECK
from tests.soak import load, plans, threads, verdict
from tests.soak.command import soak
from tests.soak.kinds import KINDS, PLAN
from tests.soak.load import Stretch
from tests.soak.random_products import sweep
from tests.soak.random_products.backend import Backend, Product, backend
from tests.soak.random_products.case import Way
from tests.soak.random_products.sweep import State
from tests.soak.threads import Load
from tests.soak.verdict import Verdict

PASSED = Verdict("plans", "2 files read", "0 wrong", True, figures={"seed": 1})


def call(*arguments: str) -> Result:
    result = CliRunner().invoke(soak, arguments, standalone_mode=False)
    assert result.exception is None, result.exception
    return result


def silent(line: str) -> None:
    raise AssertionError(line)


class TestVerdict:
    def test_it_is_one_line(self) -> None:
        assert str(PASSED) == "plans passed: 2 files read: 0 wrong"
        assert str(replace(PASSED, passed=False)).startswith("plans FAILED: ")

    def test_a_new_one_replaces_that_of_its_gate(self, tmp_path: Path) -> None:
        path = tmp_path / "soak.json"
        on_gpu = {
            **PASSED.record(),
            "on_gpu": True,
            "machine": {"device": "X", "date": "2026-01-01"},
        }
        load_first = replace(PASSED, gate="load")
        for record in (PASSED.record(), on_gpu, load_first.record()):
            verdict.keep(record, path)
        verdict.keep(replace(PASSED, found="1 wrong", passed=False).record(), path)
        found = verdict.read(path)
        assert list(found) == ["load", "plans", "plans, GPU"]
        assert found["plans"]["found"] == "1 wrong"
        assert found["plans, GPU"] == on_gpu
        table = gates_markdown(found).splitlines()
        assert table[3].startswith("| `plans` | the host | 2 files read | 1 wrong | **failed** |")
        assert table[4] == "| `plans` | X | 2 files read | 0 wrong | passed |"
        assert "2026-01-01 to 20" in table[-1]

    @pytest.mark.parametrize("text", ["", "[]", "{}x", '{"a": {}}', '{"a": 1}'])
    def test_another_file_is_refused(self, text: str, tmp_path: Path) -> None:
        path = tmp_path / "soak.json"
        path.write_text(text)
        with pytest.raises(MixPertError, match=r"soak\.json: not a result of"):
            verdict.read(path)


def _peak() -> int:
    """Bytes that this process has held at most: what takes no more than that is not seen."""
    return plans._memory()[1]


class TestPlans:
    def test_the_gate_is_passed(self) -> None:
        done = call("plans", "--count", "20")
        assert done.return_value == 0, done.stderr
        assert done.stderr.startswith("plans passed: 120 mutated files read: plans, stores, ")
        assert json.loads(done.stdout)["passed"]

    @pytest.mark.parametrize("name", KINDS)
    def test_some_are_still_valid(self, name: str) -> None:
        count = 150 if EVERY_CHECK else 50
        found = plans.gate(count, 60, 2, [].append, [name]).figures["kinds"][name]
        assert 2 < found["refused"] < count - 1

    @pytest.mark.parametrize("name", KINDS)
    def test_a_file_is_the_same_each_time(self, name: str) -> None:
        make = KINDS[name].make
        assert make(Random("1")) == make(Random("1"))
        assert len({make(Random(str(number))) for number in range(9)}) > 5

    def test_it_goes_on_where_it_was(self, tmp_path: Path) -> None:
        given = "plans", "--kind", "plans", "--state", str(tmp_path / "s.json")
        assert call(*given, "--count", "20").return_value == 0
        done = call(*given, "--count", "30")
        assert done.stderr.startswith("plans passed: 30 mutated files read: plans: ")
        with pytest.raises(MixPertError, match=r"s\.json: of seed 1; wanted 2"):
            plans.gate(1, 60, 2, silent, ["plans"], tmp_path / "s.json")
        (tmp_path / "s.json").write_text("[]")
        with pytest.raises(MixPertError, match=r"s\.json: not a state of"):
            plans.gate(1, 60, 1, silent, ["plans"], tmp_path / "s.json")

    @pytest.mark.parametrize("error", [KeyError("x"), RecursionError("deep"), SystemExit(3)])
    def test_any_other_error_fails(self, error: BaseException, monkeypatch: Any) -> None:
        def loads(*arguments: Any) -> Plan:
            raise error

        monkeypatch.setattr(plan_file, "loads", loads)
        messages: list[str] = []
        assert not plans.gate(3, 60, 1, messages.append, ["plans"]).passed
        assert messages[0].startswith(f"plans, file 1 of seed 1: {type(error).__name__}: ")

    @pytest.mark.parametrize("message", ["two\nlines", "x" * 5000])
    def test_an_error_is_one_line(self, message: str, monkeypatch: Any, tmp_path: Path) -> None:
        path = tmp_path / "p.toml"
        path.touch()

        def loads(text: str, name: str, known: Any) -> Plan:
            raise PlanError(f"{name}: {message}")

        monkeypatch.setattr(plan_file, "loads", loads)
        refused, fault = plans.judged(KINDS["plans"], path)
        assert refused
        assert fault.startswith("the error reads ")

    def test_a_plan_that_changes_when_it_is_written(self, monkeypatch: Any, tmp_path: Path) -> None:
        path = tmp_path / "p.toml"
        path.write_text(PLAN)
        assert plans.judged(KINDS["plans"], path, also=True) == (False, "")
        monkeypatch.setattr(plan_file, "save", lambda plan, path: path.write_text(""))
        expected = (False, "it reads otherwise when it has been written")
        assert plans.judged(KINDS["plans"], path, also=True) == expected

    @pytest.mark.parametrize(
        ("read", "limit", "unit"),
        [
            (lambda: sum(range(10**7)), "SLOWEST", " s"),
            (lambda: bytearray(b"x") * (_peak() + (64 << 20)), "MOST_MEMORY", " MiB"),
        ],
        ids=["slow", "large"],
    )
    def test_one_that_takes_too_much_fails(
        self, read: Any, limit: str, unit: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(plans, "SLOWEST", 60.0)
        monkeypatch.setattr(plans, limit, 0)
        kind = replace(KINDS["plans"], read=lambda path, also: read())
        monkeypatch.setitem(KINDS, "plans", kind)
        messages: list[str] = []
        assert not plans.gate(1, 60, 1, messages.append, ["plans"]).passed
        assert messages[0].endswith(unit)

    def test_one_that_ends_early_is_not_passed(self) -> None:
        assert not plans.gate(1000, 0.0, 1, silent, ["profiles"]).passed

    def test_another_kind_is_refused(self) -> None:
        done = CliRunner().invoke(soak, ["plans", "--kind", "x"])
        assert done.exit_code == 2
        assert "no kind 'x'; choose from: plans, stores, " in done.output


@dataclass(frozen=True)
class Threaded(Backend):
    """The reference backend, which goes wrong in threads."""

    def product(self, a: Array, b: Array, scheme: str, block: int | None, way: Way = "") -> Product:
        made = super().product(a, b, scheme, block, way)
        if current_thread() is main_thread() or 0 in made.value.shape:
            return made
        return replace(made, value=made.value * 2 + 1)


class TestThreads:
    def test_the_gate_is_passed(self) -> None:
        given = "--threads", "6", "--count", "20", "--different", "30"
        done = call("threads", "--backend", "reference", *given)
        assert done.return_value == 0
        output = done.stderr.splitlines()
        assert output[0].startswith("30 of 30 products made alone, in ")
        assert output[1].startswith("threads passed: 6 threads, 120 products in all, ")

    def test_other_bits_fail(self) -> None:
        messages: list[str] = []
        broken = Threaded("reference", backend("reference").xp)
        found = threads.gate(broken, Load(2, 5, 5, 20), 60, messages.append)
        assert not found.passed
        assert len(messages) > 1

    def test_one_that_ends_early_is_not_passed(self) -> None:
        found = threads.gate(backend("reference"), Load(2, 3, 3, 20), -1.0, [].append)
        assert not found.passed
        assert found.found.startswith("0 differ")
        assert found.figures["different"] == 1

    def test_one_whose_products_take_too_long_alone_is_not_passed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def late(given: Backend, *case: Any) -> str:
            sleep(0.6 if current_thread() is main_thread() else 0)
            return "bits"

        monkeypatch.setattr(threads, "digest", late)
        messages: list[str] = []
        found = threads.gate(backend("reference"), Load(2, 3, 9, 20), 2.0, messages.append)
        assert messages[0].startswith("2 of 9 products made alone")
        assert "6 products in all" in found.did
        assert not found.passed


class TestLoad:
    def test_on_this_machine(self, tmp_path: Path) -> None:
        state = tmp_path / "load.json"
        load.write([replace(self.stretch(), on=machine.machine()["cpu"])], state)
        given = "--backend", "reference", "--seconds", "2", "--window", "0.6", "--state", str(state)
        record = json.loads(call("load", *given).stdout)
        assert record["did"] == "full load for 1.67 min, 0.0333 min"
        one = record["figures"]["stretches"][1]
        assert one["first"] > 1e6
        assert one["before"]["host"] > 10 << 20
        assert len(json.loads(state.read_text())) == 2

    def test_a_window_that_is_too_short(self) -> None:
        time = [0.0]

        def work() -> float:
            time[0] += 30.0
            return 1.0

        with pytest.raises(MixPertError, match="--window"):
            load.stretch(work, lambda: {"host": 1}, "x", 100.0, 5.0, lambda: time[0])

    @staticmethod
    def stretch(slower: float = 1.0, grown: float = 1.0) -> Stretch:
        """100 s of work, a second each, which changes at half time."""
        time = [0.0]

        def work() -> float:
            time[0] += 1.0
            return 5.0 if time[0] < 50 else 5.0 * slower

        def memory() -> dict[str, int]:
            return {"host": 1000, "pool": 1000 if time[0] < 50 else int(1000 * grown)}

        return load.stretch(work, memory, "x", 100.0, 10.0, lambda: time[0])

    @pytest.mark.parametrize(
        ("slower", "grown", "holds"),
        [
            (1.0, 1.0, True),
            (0.96, 1.009, True),
            (0.94, 1.0, False),
            (1.0, 1.011, False),
            (1.0, 0.98, False),
            (1.2, 1.0, True),
        ],
    )
    def test_what_a_stretch_has_to_hold(self, slower: float, grown: float, holds: bool) -> None:
        one = self.stretch(slower, grown)
        assert one.first == pytest.approx(5.0)
        assert one.speed == pytest.approx(slower)
        assert one.holds == holds
        both = load.verdict([self.stretch(), one], 10.0, False)
        assert both.passed == holds
        assert both.found.startswith(f"the last 10 s at 100.0 %, {100 * slower:.1f} % of the first")

    def test_a_state_of_another_machine_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "state.json"
        assert load.load(path, "x") == []
        load.write([self.stretch()], path)
        assert load.load(path, "x") == [self.stretch()]
        with pytest.raises(MixPertError, match="of another machine than y"):
            load.load(path, "y")
        path.write_text("[{}]")
        with pytest.raises(MixPertError, match="not a state"):
            load.load(path, "x")


class TestProducts:
    def test_the_gate_goes_on_where_it_was(self, tmp_path: Path) -> None:
        given = "--backend", "reference", "--largest", "20", "--state", str(tmp_path / "s.json")
        assert call("products", *given, "--count", "4").return_value == 0
        done = call("products", *given, "--count", "6")
        assert done.stderr.startswith("products passed: 6 random products, ")

    def test_what_it_has_to_hold(self) -> None:
        state = State("cuda", 64, next=10, ran={"int8x6": 7, "native (k = 0)": 3})
        found = sweep.verdict(state, 10)
        assert found.passed
        assert found.on_gpu
        assert found.did.startswith("10 random products, 7 of them emulated")
        assert not sweep.verdict(state, 11).passed
        assert not sweep.verdict(replace(state, failures=["1: x"]), 10).passed


@pytest.mark.parametrize("gate", ["products", "load", "threads", "streams", "memory", "cold"])
def test_a_gate_of_a_gpu_says_that_there_is_none(gate: str) -> None:
    result = CliRunner().invoke(soak, [gate], env={"CUDA_VISIBLE_DEVICES": ""})
    if result.exception is None:
        pytest.skip("there is a GPU")
    assert isinstance(result.exception, MixPertError)
    assert str(result.exception).startswith("this benchmark runs on a GPU: ")
