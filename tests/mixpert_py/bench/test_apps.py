"""`mixpert bench apps`: whole programs on NumPy, their products emulated, and a clock that lies."""

import importlib.util
import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from math import inf
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mixpert_py.bench import machine
from mixpert_py.bench.apps import modes, process, run, tables, tuned
from mixpert_py.bench.apps import runs as runs_module
from mixpert_py.bench.apps.app import APPS, App
from mixpert_py.bench.apps.host import measure as measure_host
from mixpert_py.bench.apps.measure import Platform, measure
from mixpert_py.bench.apps.process import rehearse
from mixpert_py.bench.apps.program import Sample
from mixpert_py.bench.apps.runs import DeviceTimer, Runs, Times, on_host
from mixpert_py.errors import MixPertError, PlanError
from mixpert_py.runtime.context import current, use
from mixpert_py.runtime.gpu import break_even
from mixpert_py.tuner.records import Measurement
from tests.mixpert_py.command import ROOT, Mixpert
from tests.runtime.gpu.fake import FakeGpu, pays_from, wrapped

ROUNDING = 3.5 * 2.0**-24  # what the slices of `faithful` leave of short sums

SAMPLES = ROOT / "samples"
PROGRAM = """
import argparse
import numpy as np

ROUNDING = 3.5 * 2.0**-24  # what the slices of `faithful` leave of short sums



def parsed(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--broken")
    return parser.parse_args(arguments)


def problem(xp, options):
    x = np.random.default_rng(0).standard_normal((options.size, 40))
    return xp.asarray(x, options.dtype), [xp.asarray(x.T, options.dtype)], {"n": 3}


def work(xp, options, x, ys, more):
    if options.broken == "work":
        raise ValueError("no\\nluck")
    return x @ ys[0], more["n"]


def report(xp, options, product, n, x, ys, more):
    print(f"trace {float(xp.trace(product)):.6f}")
    print(f"whole trace of all {float(xp.trace(product)):.2f}")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "product.py").write_text(PROGRAM)
    return tmp_path


def app(**more: Any) -> App:
    return App("a product", "product", "trace", "", "", **more)


class Clock:
    """Says that a run takes a second natively, and less in slices; TF32 is not here to tell."""

    def __init__(self) -> None:
        self.runs: list[str] = []

    def __call__(self, call: Callable[[], Any], /) -> tuple[Any, Times]:
        context = current()
        schemes = {site.scheme for site in context.plan.site} if context.plan else {context.scheme}
        seconds = {"native": 1.0, "faithful": 0.5, "int8x6": 0.4, "int8x3": 0.2}
        taken = sum(seconds.get(str(scheme), 0.1) for scheme in schemes)
        self.runs.append("+".join(sorted(map(str, schemes))))
        return call(), Times(taken, 2 * taken)


def platform(clock: Clock | None = None) -> Platform:
    return Platform(np, clock or on_host, "reference")


def by_mode(record: dict[str, Any]) -> dict[str, Any]:
    return {mode["name"]: mode for mode in record["modes"]}


class TestOne:
    def test_every_mode(self, folder: Path) -> None:
        clock = Clock()
        record = measure(app(), ("--size", "30"), folder, 1e-4, platform(clock))
        found = by_mode(record)
        assert list(found) == [modes.FP32, modes.TF32, modes.FAITHFUL, modes.TUNED]
        assert found[modes.FP32]["device"]["median"] == 1.0
        assert found[modes.FP32]["wall"]["median"] == 2.0
        assert found[modes.FAITHFUL]["device"] == pytest.approx(
            {"median": 0.5, "lower": 0.5, "upper": 0.5, "runs": 5}
        )
        assert 1e-9 < found[modes.FAITHFUL]["error"] <= max(found[modes.FP32]["error"], ROUNDING)
        assert found[modes.FP32]["error"] < 1e-6
        (site,) = found[modes.TUNED]["sites"]
        assert site["schemes"] == {"int8x3": 1}
        assert site["shapes"] == [[30, 40, 30, 1]]
        # Errors are against float64, figures the program's own.
        exact = np.random.default_rng(0).standard_normal((30, 40)).astype(np.float32)
        trace = np.trace(exact.astype(float) @ exact.T.astype(float))
        assert found[modes.TUNED]["figure"] == pytest.approx(trace, rel=1e-4)
        assert 1e-6 < found[modes.TUNED]["error"] <= 1e-4

    def test_every_mode_of_complex_products(self) -> None:
        arguments = APPS["circuit"].arguments("small")
        record = measure(APPS["circuit"], arguments, SAMPLES, 1e-4, platform())
        found = by_mode(record)
        (site,) = found[modes.FAITHFUL]["sites"]
        assert site["dtypes"].keys() == {"complex64"}
        assert site["schemes"].keys() == {"faithful"}
        assert 1e-9 < found[modes.FAITHFUL]["error"] < 1e-6
        (site,) = found[modes.TUNED]["sites"]
        assert site["schemes"].keys() == {"int8x3"}
        assert 1e-6 < found[modes.TUNED]["error"] <= 1e-4

    def test_the_tuner(self, folder: Path) -> None:
        tuning = measure(app(), (), folder, 1e-6, platform())["tuned"]
        (site,) = tuning["sites"]
        assert site["scheme"] == "int8x6"
        assert site["local_errors"]["int8x3"] > 1e-6
        assert tuning["error"] <= 1e-6
        assert tuning["trials"] >= 1

    def test_a_budget_of_its_own(self, folder: Path) -> None:
        record = measure(app(budget=0.5), (), folder, 1e-9, platform())
        assert record["tuned"]["budget"] == record["alike_below"] == 0.5
        assert record["tuned"]["sites"][0]["scheme"] == "int8x1"

    def test_a_program_that_fails(self, folder: Path) -> None:
        record = measure(app(), ("--broken", "work"), folder, 1e-4, platform())
        assert record["failed"] == "ValueError: no"
        assert "luck" in record["traceback"]
        assert record["modes"] == []

    def test_a_mode_that_fails_leaves_the_others(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(xp: Any) -> Any:
            raise RuntimeError("no such math")

        monkeypatch.setattr(modes, "tensor_float", broken)
        found = by_mode(measure(app(), (), folder, 1e-4, platform()))
        assert found[modes.TF32]["failed"] == "RuntimeError: no such math"
        assert "device" not in found[modes.TF32]
        assert "device" in found[modes.TUNED]

    def test_a_tuner_that_fails_leaves_the_others(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: Any) -> Any:
            raise MixPertError("no plan")

        monkeypatch.setattr(tuned, "search", broken)
        record = measure(app(), (), folder, 1e-4, platform())
        assert record["tuned"]["failed"] == "MixPertError: no plan"
        assert list(by_mode(record)) == [modes.FP32, modes.TF32, modes.FAITHFUL]

    def test_one_that_is_too_far_off_natively_stays_native(self, folder: Path) -> None:
        record = measure(app(), (), folder, 1e-12, platform())
        assert [site["scheme"] for site in record["tuned"]["sites"]] == ["native"]

    def test_a_plan_under_which_the_program_fails_is_a_measurement(self, folder: Path) -> None:
        runs = Runs.of(app(), Sample.load(folder / "product.py").problem(np, ()), on_host)
        runs.problem.options.broken = "work"
        measured = tuned.PlanMeasurer(runs, "reference", set(), inf)({})
        assert measured.problem == "ValueError: no\nluck"
        assert np.isnan(measured.error)

    def test_when_time_is_over_what_was_found_is_the_plan(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tuned, "MOST_SECONDS", -1.0)  # and the native run's second
        native = Measurement(1.0, 0.0, {"product:work/matmul~145133#0": 1.0})
        runs = Runs.of(app(), Sample.load(folder / "product.py").problem(np, ()), on_host)
        outcome, trials = tuned.search(runs, 1e-4, "reference", native)
        assert trials == 0
        assert set(outcome.plan.values()) == {"native"}

    def test_the_native_run_of_a_host_program_is_made_once(self, folder: Path) -> None:
        clock = Clock()
        measure_host(app(), ("--dtype", "float64"), folder, 1e-5, platform(clock))
        assert clock.runs.count("native") == 1
        assert clock.runs[:2] == ["native", "int8x10"]

    def test_a_rehearsal_runs_every_level(self, folder: Path) -> None:
        clock = Clock()
        rehearse(app(), (), folder, platform(clock), first=4)
        levels = ["int8x10", "faithful", "int8x6", "int8x3", "int8x1"]
        assert clock.runs[:5] == [*levels[4:], *levels[:4]]
        assert clock.runs[5:] == ["native"] * 3
        rehearse(app(), ("--broken", "work"), folder, platform(clock), first=0)

    def test_a_host_program(self, folder: Path) -> None:
        record = measure_host(app(), ("--dtype", "float64"), folder, 1e-5, platform(Clock()))
        assert record["native"] == 2.0
        assert record["rewritten"] == 0.8
        assert record["speedup"] == pytest.approx(2.5)
        assert list(record["plan"].values()) == ["int8x6"]
        assert 1e-8 < record["error"] < 1e-5
        broken = measure_host(app(), ("--broken", "work"), folder, 1e-5, platform())
        assert broken["failed"] == "ValueError: no"


def test_on_a_gpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not there: what nobody plans runs faithful, on its kernels."""
    gpu = FakeGpu()
    cupy = gpu.install(monkeypatch)
    cupy.linalg = SimpleNamespace(norm=wrapped(np.linalg.norm))
    cupy.trace = wrapped(np.trace)
    cupy.asarray = lambda x, dtype=None: gpu.asarray(np.asarray(x, dtype))
    monkeypatch.setattr(break_even, "figures", lambda device: pays_from(1.0))
    monkeypatch.setattr(modes, "tensor_float", lambda xp: nullcontext())
    there = Platform(cupy, DeviceTimer(cupy), None)
    record = measure(app(), ("--size", "64"), folder, 1e-4, there)
    assert tables.failures({"apps": [record], "host": []}) == []
    found = by_mode(record)
    ran = {name: next(iter(mode["sites"]))["schemes"] for name, mode in found.items()}
    assert ran[modes.FP32] == {"native": 1}
    assert ran[modes.FAITHFUL] == {"faithful": 1}
    assert found[modes.FAITHFUL]["error"] < max(found[modes.FP32]["error"], ROUNDING)
    assert len(gpu.launches) > 0


class TestSample:
    def test_products_are_really_the_tools(self, folder: Path) -> None:
        problem = Sample.load(folder / "product.py").problem(np, ("--size", "20"))
        with use(modes.NATIVE):
            native, _ = problem.work()
        (site,) = problem.sample.sites
        with use(modes.under({site: "int8x1"}, "reference")):
            lowered, _ = problem.work()
        assert 1e-4 < np.linalg.norm(native - lowered) / np.linalg.norm(native) < 0.1

    def test_wide(self, folder: Path) -> None:
        wide = Sample.load(folder / "product.py").problem(np, ()).wide()
        x, (y,), more = wide.inputs
        assert (x.dtype, y.dtype, more) == (np.float64, np.float64, {"n": 3})
        assert wide.options.dtype == "float64"

    def test_wide_of_complex_inputs(self) -> None:
        problem = Sample.load(SAMPLES / "circuit.py").problem(
            np, APPS["circuit"].arguments("small")
        )
        assert {u.dtype for u in problem.inputs[0]} == {np.dtype(np.complex64)}
        unitaries, layers = problem.wide().inputs
        assert {u.dtype for u in unitaries} == {np.dtype(np.complex128)}
        np.testing.assert_array_equal(unitaries, problem.inputs[0])
        with use(modes.NATIVE):
            (state,) = problem.wide().work()
        assert state.dtype == np.complex128
        assert [len(gates) for gates in layers] == [len(gates) for gates in problem.inputs[1]]

    def test_the_figure_is_the_line_that_begins_so(self, folder: Path) -> None:
        problem = Sample.load(folder / "product.py").problem(np, ())
        values = (np.eye(3), 3)
        assert problem.figure("trace", values) == 3.0
        assert problem.figure("whole trace", values) == 3.0
        with pytest.raises(MixPertError, match="prints no 'race'"):
            problem.figure("race", values)

    def test_a_file_without_the_parts(self, tmp_path: Path) -> None:
        (tmp_path / "a.py").write_text("def parsed(): pass\ndef problem(a, b): return a @ b\n")
        with pytest.raises(MixPertError, match=r"has no function work\(\)"):
            Sample.load(tmp_path / "a.py")
        (tmp_path / "b.py").write_text("x = 1\n")
        with pytest.raises(MixPertError, match="has no product"):
            Sample.load(tmp_path / "b.py")


@pytest.fixture
def strict() -> ModuleType:
    """NumPy that mixes arrays of the device and of the host as little as CuPy does."""
    path = ROOT / "tests" / "samples" / "strict" / "cupy.py"
    spec = importlib.util.spec_from_file_location("strict_cupy", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", APPS)
def test_every_application(name: str, strict: ModuleType) -> None:
    """At its small size, on arrays of a device; at its large ones, that it takes its arguments."""
    sample = Sample.load(SAMPLES / f"{APPS[name].sample}.py")
    problem = sample.problem(strict, APPS[name].arguments("small"))
    runs = Runs.of(APPS[name], problem, on_host)
    values, _ = runs.once(modes.NATIVE)
    assert 0 < runs.error(values) < 1e-5
    assert np.isfinite(runs.figure(values))
    assert len(runs.reference) == APPS[name].judged
    sample.functions["parsed"](APPS[name].arguments("paper"))
    sample.functions["parsed"](APPS[name].host_arguments("paper"))


def test_the_error_is_that_of_the_worst_value(folder: Path) -> None:
    problem = Sample.load(folder / "product.py").problem(np, ())
    runs = Runs(app(judged=2), problem, on_host, (np.full(4, 2.0), np.array(5.0)))
    assert runs.error((np.full(4, 2.5), np.array(5.5), np.ones(9))) == pytest.approx(0.25)
    assert runs.error((np.full(4, 2.5), np.array(7.5))) == pytest.approx(0.5)


def test_the_error_of_a_large_value_is_that_of_its_bands(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Sample.load(folder / "product.py").problem(np, ())
    runs = Runs(app(), problem, on_host, (np.full((9, 4), 2.0),))
    found = np.full((9, 4), 2.0)
    found[8, 3] = 3.2
    whole = runs.error((found,))
    monkeypatch.setattr(runs_module, "BAND", 100)  # bytes: three rows
    assert runs.error((found,)) == pytest.approx(whole) == pytest.approx(0.1)
    found[4, 0] = np.nan
    assert np.isnan(runs.error((found,)))


def test_an_error_that_is_no_number(folder: Path) -> None:
    runs = Runs.of(app(), Sample.load(folder / "product.py").problem(np, ()), on_host)
    values, _ = runs.once(modes.NATIVE)
    assert np.isnan(runs.error((np.where(values[0] > 0, np.nan, values[0]),)))


class TestCommand:
    def test_programs_into_a_file(self, mixpert: Mixpert, tmp_path: Path) -> None:
        small = ("bench", "apps", "--size", "small", "--backend", "reference")
        place = ("--samples", str(SAMPLES), "--json", "apps.json")
        said = mixpert(*small, *place, "--only", "knn", "--only", "circuit")
        assert said.code == 0, said.err
        assert "faithful, error no larger than FP32's, geometric mean" in said.out
        written = run.read(tmp_path / "apps.json")
        assert written is not None
        assert [record["name"] for record in written["apps"]] == ["knn", "circuit"]
        said = mixpert(*small, *place, "--host", "--only", "knn")
        assert said.code == 0, said.err
        assert "NumPy programs, the slowest" in said.out
        both = run.read(tmp_path / "apps.json")
        assert both is not None
        assert both["apps"] == written["apps"]  # what was measured before stays
        assert [record["name"] for record in both["host"]] == ["knn"]
        assert [record["budget"] for record in (*both["apps"], *both["host"])] == [1e-4, 1e-4, 1e-5]

    def test_an_unknown_application(self, mixpert: Mixpert) -> None:
        said = mixpert("bench", "apps", "--backend", "reference", "--only", "chess")
        assert said.code == 2
        assert "unknown application 'chess'; known: knn, kmeans, " in said.one_clear_line()

    def test_one_that_fails_is_named(self, mixpert: Mixpert, tmp_path: Path) -> None:
        said = mixpert(
            *("bench", "apps", "--size", "small", "--backend", "reference"),
            *("--samples", "nowhere", "--only", "knn", "--json", "apps.json"),
        )
        assert said.code == 1
        assert "knn: SourceError: nowhere/knn.py: no such file or directory" in said.out
        assert (
            "Traceback" in json.loads((tmp_path / "apps.json").read_text())["apps"][0]["traceback"]
        )

    def test_a_process_that_dies(self) -> None:
        options = {"app": "knn", "size": "small", "samples": str(SAMPLES), "budget": 1e-4}
        record = process.apart({**options, "backend": "reference", "host": False}, 0.05)
        assert record["name"] == "knn"
        assert record["failed"].startswith("still running after 0.05 s")

    def test_names(self) -> None:
        assert [app.name for app in run.chosen(["mlp", "knn"])] == ["knn", "mlp"]
        assert len(run.chosen([])) == len(APPS)
        with pytest.raises(PlanError):
            run.chosen(["knn", "chess"])


@pytest.mark.parametrize(
    ("backend", "only", "times"),
    [(None, ("knn", "gp"), 2), (None, ("knn",), 1), ("reference", ("knn", "gp"), 1)],
)
def test_several_are_rehearsed_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, backend: str | None, only: tuple[str, ...], times: int
) -> None:
    asked: list[str] = []
    begun: list[int] = []

    def apart(options: dict[str, Any], limit: float) -> dict[str, Any]:
        asked.append(options["app"])
        if "first" in options:
            begun.append(options["first"])
        return {"name": options["app"], "budget": 1.0, "failed": f"{len(asked)}", "traceback": ""}

    monkeypatch.setattr(run, "apart", apart)
    monkeypatch.setattr(run, "platform", lambda backend: SimpleNamespace(xp=None))
    monkeypatch.setattr(machine, "device", lambda xp: {"device": "a GPU"})
    assert run.run(run.Options("small", 1.0, "samples", backend), only, None) == 1
    assert sorted(asked) == sorted(only * times)
    assert asked[-len(only) :] == list(only)  # what counts comes last, one after the other
    assert sorted(begun) == list(range(len(asked) - len(only)))  # each with another level


def apart_in(seconds: float) -> Callable[[dict[str, Any], float], dict[str, Any]]:
    """Takes so long for each; what has less time is cut off."""

    def apart(options: dict[str, Any], limit: float) -> dict[str, Any]:
        time.sleep(min(seconds, limit))
        late = {"failed": "late"} if limit < seconds else {}
        return {"name": options["app"], "budget": 1.0, "modes": [], "alike_below": 0.0, **late}

    return apart


def test_what_there_is_no_time_for_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "apart", apart_in(0.2))
    options = run.Options("small", 1.0, "samples", "reference")
    begin = time.perf_counter()
    assert run.run(options, ("knn", "mlp", "gp", "bert"), tmp_path / "apps.json", seconds=0.5) == 1
    assert time.perf_counter() - begin < 0.9
    kept = run.read(tmp_path / "apps.json")
    assert kept is not None
    assert [record["name"] for record in kept["apps"]] == ["knn", "mlp", "bert"]
    assert [record.get("failed") for record in kept["apps"]] == [None, None, "late"]
    assert "not measured, the time given was over" in capsys.readouterr().err


def test_a_failed_record_does_not_replace_a_good_one() -> None:
    good, bad = {"name": "knn"}, {"name": "knn", "failed": "E: no"}
    assert run._merged([good], [bad]) == [good]
    assert run._merged([bad], [good]) == [good]
    assert run._merged([bad], [{**bad, "failed": "E: again"}]) == [{**bad, "failed": "E: again"}]
