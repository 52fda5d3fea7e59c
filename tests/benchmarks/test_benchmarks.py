"""Benchmarks without a GPU, with given times: measures, tables, applications, programs, tunings."""

import ast
import hashlib
import io
import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixpert_py.runtime import exact_integers, worth
from mixpert_py.tuner.ratio import Pace
from tests.benchmarks import (
    app_runs,
    apps,
    dispatch,
    exact_bits,
    float64,
    gemm,
    looks,
    machine,
    patterns,
    programs,
    size,
    symmetric,
    tables,
    ten_tunings,
)
from tests.benchmarks.app_runs import APPS
from tests.benchmarks.contract import Errors, Exact, Sums, errors
from tests.benchmarks.fake_bench import FakeClock, bench
from tests.benchmarks.programs import Program
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
        patch.setattr("tests.benchmarks.gemm.ran", lambda a, b, name: name)
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
    stairs = tables.of_float32(result, 64)
    assert [step.name for step in stairs.steps] == ["faithful", "int8x6", "int8x3"]
    assert "int8x3 10.0× (error 1.0e-04)" in stairs.sentence()
    pytest.importorskip("matplotlib")
    tables.draw(stairs, tmp_path)
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
    rows = dispatch.sweep("training: ", 3, 0.1)
    assert [row["what"] for row in rows] == [f"training: {name}" for name in NAMES]
    assert {row["ratio"]["median"] for row in rows} == {2.0}
    found = {"rows": rows, "machine": {"device": "X", "date": "d"}}
    assert "2.00× to 2.00×" in dispatch.sweep_sentence(found)


def test_complex_products() -> None:
    rows = float64.measure(np, FakeClock(), (32, 64), float64.COMPLEX, "reference")
    found = {(row["dtype"], row["name"]): row["error"] for row in rows if row["n"] == 64}
    assert found["complex128", "crt16"] < 1e-16 < found["complex128", "cuBLAS"] < 1e-15
    assert 1e-8 < found["complex64", "faithful"] < 1e-6
    facts = {"device": "X", "date": "d"}
    text = float64.complex_markdown({"rows": rows, "machine": facts})
    assert "| complex128 | crt14 | 1.00 (1.00×) | 1.00 (1.00×) |" in text


@pytest.mark.parametrize("page", tables.PAGES)
def test_the_pages_hold_the_saved_results(page: str) -> None:
    assert tables.filled(tables.ROOT / page) == (tables.ROOT / page).read_text("utf-8")


def test_pictures_are_those_of_the_saved_results(tmp_path: Any) -> None:
    for name, make in (("gemm", tables.of_float32), ("float64", tables.of_float64)):
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


U, INF = 2.0**-24, math.inf
# A B = [[11, −3], [4, −3]], |A||B| = [[11, 9], [4, 3]], (A∘A)(B∘B) = [[73, 45], [16, 9]].
EXACT = Exact.of(np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([[3.0, 3.0], [4.0, -3.0]]))


@pytest.mark.parametrize(
    ("error", "frobenius", "componentwise"),
    [
        ([[22, 0], [0, -12]], U * math.sqrt((22**2 + 12**2) / 155), 4),  # 12 of 3, not 22 of 11
        ([[0, 9], [0, 0]], U * 9 / math.sqrt(155), 1),  # 9 of 9: |C| is 3
        ([[0, INF], [0, 0]], INF, INF),
        ([[0, math.nan], [0, 0]], INF, INF),
    ],
)
def test_errors_by_hand(error: Any, frobenius: float, componentwise: float) -> None:
    found = errors(EXACT, EXACT.product + U * np.array(error, float))
    assert found == Errors(pytest.approx(frobenius), pytest.approx(componentwise))


@pytest.mark.parametrize(
    ("exact", "terms", "floor"),
    [
        # (|A||B|)² over (A∘A)(B∘B): 121 / 73, 81 / 45, 1, 1.
        (EXACT, (121 / 73 + 1) / 2, 3.5 * U * math.sqrt((73 + 45 + 16 + 9) / 155)),
        (Exact.of(np.full((3, 100), 7.0), np.full((100, 2), -3.0)), 100, 3.5 * U / 10),
        (Exact.of(np.array([[2.0], [0.0]]), np.array([[1.0, 0.0, 0.0]])), 1, 3.5 * U),
        (Exact.of(np.array([[1.0, 1.0]]), np.array([[1.0], [-1.0]])), 2, INF),  # it cancels
    ],
)
def test_sums_by_hand(exact: Exact, terms: float, floor: float) -> None:
    assert Sums.of(exact) == Sums(pytest.approx(terms), pytest.approx(floor))


@pytest.mark.parametrize(
    ("own", "vendor", "floor", "over"),
    [
        ((3e-7, 0), (6e-7, 0), 2e-7, (0.5, 0)),  # the vendor's error is what is allowed
        ((3e-7, 0), (1e-7, 0), 2e-7, (1.5, 0)),  # the floor is
        ((0, 6), (0, 3), 0, (0, 0.5)),  # 12 units of an element are
        *(((1e-9, 24), (0, 3), 0, (INF, 2)), ((INF, 24), (INF, 48), 2e-7, (INF, 0.5))),
        ((1e-7, INF), (1e-7, 1), INF, (0, INF)),
    ],
)
def test_errors_over_what_is_allowed(own: Any, vendor: Any, floor: float, over: Any) -> None:
    assert Errors(*own).over(Errors(*vendor), floor) == Errors(*map(pytest.approx, over))


SCRIPT = '"""Of a product."""\nfrom __future__ import annotations\nimport numpy as np\nN = 2\n'
SEEN = "print('mixpert_py.runtime.api' in sys.modules, file=open({!r}, 'a'))\n"
USED = "import sys, part\nassert part.square(np.eye(N)).sum() == 3 == int(sys.argv[1])\n"
PART = "def square(x):\n    return x @ x\n"


def of(path: Path, name: str, files: dict[str, str], **given: Any) -> Program:
    """A program whose files lie in a folder of sources."""
    for file, text in files.items():
        (path / f"owner/name/c0/{file}").parent.mkdir(parents=True, exist_ok=True)
        (path / f"owner/name/c0/{file}").write_text(text)
    digests = {file: hashlib.sha256(text.encode()).hexdigest() for file, text in files.items()}
    facts = {"repository": "owner/name", "commit": "c0"}
    return Program(name=name, script=next(iter(files)), files=digests, **facts, **given)


def test_the_list() -> None:
    both = [programs.public(gpu) for gpu in (False, True)]
    listed = {program.name: program for program in (*both[0], *both[1])}
    assert len(listed) == 20
    assert len({program.field for program in listed.values()}) >= 6
    assert [sum(it.arrays == "torch" for it in each) for each in both] == [5, 5]
    for program in listed.values():
        assert program.script in program.files
        assert re.fullmatch("[0-9a-f]{40}", program.commit)
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in program.files.values())
        assert all(old != new for old, new in (*program.edits, *program.gpu_edits))
    names = [sample.name for sample in programs.samples(gpu=False)]
    assert {*programs.LARGER} < {*names}
    on_gpu = programs.samples(gpu=True)
    assert {sample.name for sample in on_gpu} < {*names}
    assert all(sample.arguments[:1] == ["--gpu"] for sample in on_gpu)


def test_programs_run_in_both_ways(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    files = {"a/main.py": SCRIPT + USED + SEEN.format(str(seen)), "a/part.py": PART}

    def measured(name: str, files: dict[str, str], **given: Any) -> Any:
        program = of(tmp_path, name, files, **given)
        return programs.measure(program, 1, sources=tmp_path, gpu=False)

    good = measured("good", files, edits=[("N = 2", "N = 3")], arguments=["3"])
    for way in programs.COMMANDS:
        (whole,), (inside,) = good[way]["whole"], good[way]["inside"]
        assert 0 < inside < whole
    assert seen.read_text().split() == ["True", "False", "False", "True"]
    assert measured("bad", {"main.py": "raise SystemExit('no')\n"}) == {"error": "exit 1: no"}
    assert measured("odd", files, edits=[("N = 1", "")])["error"].startswith("'N = 1' is not in")


def test_equal_times_are_seldom_called_faster_and_tenths_are_found() -> None:
    rows = looks.simulate(120)
    for row in rows:
        if row["ratio"] >= 1:
            assert row[Pace.FASTER] <= 0.025
            assert row[Pace.NOT_FASTER] >= 0.9
        elif row["ratio"] == 0.9:
            assert row[Pace.FASTER] >= 0.9
    text = looks.markdown({"trials": 120, "rows": rows})
    assert text.count("| heavy-tailed |") == 1
    assert "| quiet, 1 % | 100.0/0.0/0.0 |" in text


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no choice of cores here")
def test_a_program_that_is_tuned_again(tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.write_text("import numpy as np\na = np.ones((9, 9), int) @ np.ones((9, 9), int)\n")
    found = ten_tunings.measure([script], tries=1, budget="1e-5")
    for one in found:
        assert "no plan was written" in one["tune"]["outcome"]
        assert one["script"] == "s"
        assert one["program"] > 0
        assert one["estimate"]["runs"] == one["tune"]["runs"] == 1
