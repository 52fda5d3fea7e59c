"""Benchmarks without a GPU: NumPy multiplies, the clock tells given times, samples are small."""

import ast
import io
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime import exact_integers, worth
from tests.benchmarks import (
    app_runs,
    apps,
    complex_products,
    dispatch,
    exact_bits,
    gemm,
    machine,
    patterns,
    size,
    staircase,
    symmetric,
    tables,
)
from tests.benchmarks.app_list import APPS
from tests.benchmarks.fake_bench import FakeClock, bench
from tests.runtime.integers import EVERY_SIZE

WEIGHTS = {
    gemm.BASE: (1.0, 1e-6),
    "cuBLAS TF32": (0.2, 1e-3),
    "faithful": (0.25, 5e-7),
    "int8x6": (0.2, 6e-7),
    "int8x3": (0.1, 1e-4),
}


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    """A result of the suite on n = 32 and 64, by contenders of known speed and error."""
    fake = bench(FakeClock(), WEIGHTS)
    found: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gemm, "ERROR_SIZE", 32)
        patch.setattr("tests.benchmarks.contenders.ran", lambda a, b, name: name)
        loop = {"n": 32, "native": {"median": 4.0}, "ours": {"median": 2.0}, "ratio": 2.0}
        for name, section in gemm.sections(fake, (32, 64), ("normal", "spikes")).items():
            found[name] = [loop] if name == "loops" else section()
    facts = {"device": "X", "driver": "1", "cuda": "1", "cublas": "1", "cupy": "1", "date": "d"}
    return {"machine": facts, "sections": machine.rounded(found)}


def test_speeds_and_errors_of_contenders(result: dict[str, Any]) -> None:
    rows = {row["name"]: row for row in result["sections"]["speed 64"]}
    assert rows["int8x3"]["speedup"]["median"] == pytest.approx(10)
    assert rows["faithful"]["tflops"] == pytest.approx(2e-12 * 64**3 / 0.25e-3, rel=1e-4)
    errors = {row["name"]: row["frobenius"] for row in result["sections"]["accuracy normal 64"]}
    assert errors["int8x3"] == pytest.approx(1e-4, rel=0.1)
    contract = {row["name"]: row for row in result["sections"]["families spikes 32"]}
    assert contract["faithful"]["frobenius_over"] < 1 < contract["int8x6"]["draws"]


def test_the_staircase(result: dict[str, Any], tmp_path: Any) -> None:
    stairs = staircase.of_float32(result, 64)
    assert [step.name for step in stairs.steps] == ["faithful", "int8x6", "int8x3"]
    assert "int8x3 10.0× (error 1.0e-04)" in stairs.sentence()
    pytest.importorskip("matplotlib")
    staircase.draw(stairs, tmp_path)
    light, dark = ((tmp_path / f"staircase{end}.svg").read_text() for end in ("", "-dark"))
    assert "faithful 4.0×, the default" in light
    assert light.replace("#ffffff", "") != dark.replace("#0d1117", "")


class Echo(io.StringIO):
    """A process that takes three seconds natively, and half as long by `mixpert run`."""

    def __init__(self, command: list[str], **pipes: object) -> None:
        seconds = 1.5 if "run" in command else 3.0
        super().__init__(f"{seconds}\n" * int(command[-1 - len(NAMES)]) * len(NAMES))
        self.stdin, self.stdout = io.StringIO(), self


NAMES = [name for name, *_ in patterns.PATTERNS["training"]]


def test_a_sweep_takes_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "Popen", Echo)
    monkeypatch.setattr(patterns, "PATTERNS", {"training": patterns.PATTERNS["training"]})
    rows = dispatch.sweep("training: ", 3, 0.1, apart=False)
    assert [row["what"] for row in rows] == [f"training: {name}" for name in NAMES]
    assert {row["ratio"]["median"] for row in rows} == {2.0}
    text = dispatch.sweep_table({"rows": rows, "machine": machine.machine()})
    assert f"{len(NAMES)} patterns, geometric mean 2.00×" in text
    found = {"rows": rows, "machine": {"device": "X", "date": "d"}}
    assert "2.00× to 2.00×" in dispatch.sweep_sentence(found)


def test_complex_products() -> None:
    rows = complex_products.measure(np, FakeClock(), (32, 64), "reference")
    found = {(row["dtype"], row["name"]): row["error"] for row in rows if row["n"] == 64}
    assert found["complex128", "crt16"] < 1e-16 < found["complex128", "cuBLAS"] < 1e-15
    assert 1e-8 < found["complex64", "faithful"] < 1e-6
    facts = {"device": "X", "date": "d"}
    text = complex_products.markdown({"rows": rows, "machine": facts})
    assert "| complex128 | crt14 | 1.00 (1.00×) | 1.00 (1.00×) |" in text


@pytest.mark.parametrize("page", tables.PAGES)
def test_the_pages_hold_the_saved_results(page: str) -> None:
    assert tables.filled(tables.ROOT / page) == (tables.ROOT / page).read_text("utf-8")


def test_pictures_are_those_of_the_saved_results(tmp_path: Any) -> None:
    for name, make in (("gemm", staircase.of_float32), ("float64", staircase.of_float64)):
        found = machine.load(name)
        assert found is not None
        stairs = make(found)
        for end in ("", "-dark"):
            text = (tables.ROOT / "docs" / f"{stairs.name}{end}.svg").read_text("utf-8")
            assert all(f"{step.name} " in text for step in stairs.steps)


@pytest.mark.parametrize("name", ["knn", "gp"])
def test_an_application_in_every_mode(name: str) -> None:
    given = {"size": "small", "budget": 1e-3, "backend": "reference"}
    record = apps.made(APPS[name], **given, host=False)
    assert "failed" not in record, record
    modes = apps.modes_of(record)
    assert set(modes) == {app_runs.FP32, app_runs.TF32, app_runs.FAITHFUL, app_runs.TUNED}
    assert modes[app_runs.TUNED]["error"] <= 1e-3
    assert modes[app_runs.FAITHFUL]["error"] < 1e-5
    host = apps.made(APPS[name], **given, host=True)
    assert "failed" not in host, host
    assert host["error"] <= 1e-3


def test_an_application_in_a_process_of_its_own() -> None:
    options = {"size": "small", "budget": 1e-3, "backend": "reference", "host": False}
    assert "failed" not in apps.apart("qkv", options, 120.0)
    late = apps.apart("qkv", options, 0.01)
    assert late["failed"].startswith("still running after 0.01 s")
    result = {"machine": {"cpu": "c", "cores": 1, "numpy": "2", "date": "d"}, "host": []}
    assert "| qkv | still running" in apps.markdown({**result, "apps": [late]})


def test_every_application_is_a_sample() -> None:
    for app in APPS.values():
        assert (apps.SAMPLES / f"{app.sample}.py").is_file()
        assert app.arguments("small")
        assert app.arguments("paper")


def test_newton_schulz_and_the_table_of_symmetric_products(result: dict[str, Any]) -> None:
    x = np.random.default_rng(0).standard_normal((40, 40))
    found = np.linalg.svd(symmetric.newton_schulz(np.matmul, x / np.linalg.norm(x)))[1]
    assert (abs(found - 1) < 0.4).all()
    row = {"what": "x", "dtype": "float32", "scheme": "default"}
    times = {"native": 0.02, "one array": 0.008}
    text = symmetric.markdown({"rows": [{**row, "seconds": times}], "machine": result["machine"]})
    assert "| x | float32, default | 20 (2.50×) | – | 8 |" in text


def test_every_total_of_the_size_is_stated() -> None:
    code = (tables.ROOT / "docs" / "code.md").read_text("utf-8")
    found = size.totals()
    assert [name for name, _ in size.STATED.findall(code)] == list(found)
    assert min(list(found.values())[:4]) > 0
    assert not found["modules in import circles"]


def test_imports_in_functions_close_a_circle() -> None:
    texts = {"m.a": "def f():\n    from m.b import x\n", "m.b": "from m import c, a\n"}
    texts["m.c"] = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from m.a import f\n"
    trees = {name: ast.parse(text) for name, text in texts.items()}
    assert size.circles(trees) == [{"m.a", "m.b"}]


@pytest.mark.parametrize("number", [1, 2], ids=["small panels", "large panels"])
def test_random_exact_products_have_every_bit_and_a_wrong_one_is_found(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*EVERY_SIZE, *exact_bits.COSTS):  # which a part of the check changes
        monkeypatch.setattr(worth, name, getattr(worth, name))
    for name in ("PANEL", "CACHED"):
        monkeypatch.setattr(exact_integers, name, getattr(exact_integers, name))
    monkeypatch.setattr(exact_bits, "PART", 300)
    counts, wrong = exact_bits.part(0, number)
    assert counts["exact"] > 200
    assert not wrong
    made = exact_bits.made

    def flipped(*given: Any) -> Any:
        value, scheme = made(*given)
        if value.size:
            value.flat[-1] = ~value.flat[-1]
        return value, scheme

    monkeypatch.setattr(exact_bits, "made", flipped)
    monkeypatch.setattr(exact_bits, "PART", 40)
    assert len(exact_bits.part(0, number)[1]) > 30
