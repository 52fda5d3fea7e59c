"""Exhibits of the papers, measured without a GPU or by a clock of given times, and their page."""

import json
import math
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixpert_py.errors import MixPertError, PlanError
from mixpert_py.runtime.model.device_model import find
from samples.papers import baselines, chart, legemm, markidis, place, raihan, run
from samples.papers.exhibit import Bars, Column, Exhibit, Found, Lines, Missing, Paper, Published
from samples.papers.fragments import Fragment
from samples.papers.gpu import Gpu
from samples.papers.page import page
from samples.papers.place import FP16, FP32, Place
from samples.papers.tiles import FIXED, gains
from tests.benchmarks import machine
from tests.benchmarks.fake_bench import FakeClock, contender
from tests.mixpert_py.command import Said, forked

FRAGMENT = "mma.sync m16n8k16 float16"


@pytest.fixture(scope="module")
def reference() -> Place:
    return place.without_gpu()


def on_fake_gpu() -> Place:
    """NumPy, and a clock to which fp16 is quickest, and a scheme twice as quick as cuBLAS FP32."""
    names = (*place.SCHEMES, baselines.SEPARATE_CALLS, baselines.SDK)
    made = {name: contender(name, 0.5, 1e-6) for name in names}
    made |= {FP32: contender(FP32, 1.0, vendor=True), FP16: contender(FP16, 0.2, vendor=True)}
    made[baselines.SDK] = contender(baselines.SDK, 4.0, vendor=True)
    made[baselines.SEPARATE_CALLS] = contender(baselines.SEPARATE_CALLS, 1.5, vendor=True)
    return Place(np, made, "One fake.", FakeClock(), small=True, rounds=2)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(legemm, "device_name", lambda place: "NVIDIA H200")
    monkeypatch.setattr(raihan, "timings", lambda: find("h200").instruction)
    return on_fake_gpu()


def rows(id_: str, at: Place) -> list[dict[str, Any]]:
    found = run.EXHIBITS[id_].measure(at)
    assert isinstance(found, Found)
    return found.rows


def test_what_is_chosen() -> None:
    assert [one.id for one in run.chosen(())] == list(run.EXHIBITS)
    assert [one.id for one in run.chosen(("raihan", "egemm-error"))] == [
        *("egemm-error", "raihan-fragments", "raihan-latency", "raihan-correlation")
    ]
    with pytest.raises(PlanError, match="unknown exhibit or paper 'egem'"):
        run.chosen(("egem",))


def test_errors_are_against_fp32_and_fp64(reference: Place) -> None:
    half, egemm, single = reference.errors((FP16, "egemm", FP32), "[-1, 1)", 40, 64, 24)
    a, b = reference.uniform((-1.0, 1.0), 40, 64, 24)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    halves = a.astype(np.float16).astype(np.float32) @ b.astype(np.float16).astype(np.float32)
    assert half["max"] == np.abs(halves.astype(np.float64) - (a @ b)).max()
    assert half["max_exact"] == np.abs(halves - exact).max()
    assert half["frobenius"] == pytest.approx(
        np.linalg.norm(halves - exact) / np.linalg.norm(exact)
    )
    assert single["max"] == 0 < single["max_exact"] < 1e-5
    assert 0 < egemm["max"] < half["max"] / 100
    assert (egemm["m"], egemm["k"], egemm["n"]) == (40, 64, 24)


def test_speeds_are_beside_cublas(fake: Place) -> None:
    found = rows("egemm-speed", fake)
    at = {row["name"]: row for row in found if row["n"] == 64}
    assert at["egemm"]["times"] == pytest.approx(2)
    assert at[baselines.SDK]["times"] == pytest.approx(0.25)
    assert at[FP32]["tflops"] == pytest.approx(2e-12 * 64**3 / 1e-3)
    said = run.EXHIBITS["egemm-speed"].headline
    assert said is not None
    assert said(found) == "egemm 2.00× cuBLAS FP32, 8.0× the SDK-style kernel"


def test_roofs_are_of_memory_and_of_matrix_instructions(fake: Place) -> None:
    model = find("h200")
    assert model.rates.int8 is not None
    assert legemm.roof(model, "int8x6", 1e9) == pytest.approx(model.rates.int8 / 6e12)
    assert legemm.roof(model, "int8x6", 2.0) == pytest.approx(2e-12 * model.dram.bandwidth)
    found = rows("legemm-roofline", fake)
    roofs = {row["intensity"]: row["tflops"] for row in found if row["name"] == "roof of legemm"}
    for row in found:
        if row["name"] == "legemm":
            assert row["share"] == pytest.approx(row["tflops"] / roofs[row["intensity"]])
            assert row["intensity"] == pytest.approx(
                2 / (4 * (1 / row["m"] + 1 / row["k"] + 1 / row["n"]))
            )


def test_applications_are_those_of_their_benchmark(
    reference: Place, monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine, "RESULTS", tmp_path)
    exhibit = run.EXHIBITS["egemm-applications"]
    assert isinstance(exhibit.measure(reference), Missing)
    known = (("cuBLAS FP32", 4e-3, 1e-7), ("faithful", 2e-3, 1e-8), ("tuned", 1e-3, 1e-5))
    modes = [{"name": n, "error": e, "device": {"median": seconds}} for n, seconds, e in known]
    failed = {"name": "cuBLAS TF32", "failed": "E: no"}
    apps = [{"name": "knn", "modes": [*modes, failed]}, {"name": "bert", "modes": modes}]
    apps.append({"name": "kmeans", "failed": "E: no"})
    result = {"machine": machine.machine(), "size": "paper", "budget": 1e-4, "host": []}
    (tmp_path / "apps.json").write_text(json.dumps({**result, "apps": apps}))
    found = rows("egemm-applications", reference)
    assert [(row["app"], row["name"]) for row in found] == [("knn", name) for name, *_ in known]
    told = {"app": "knn", "name": "tuned", "error": 1e-5, "seconds": 1e-3}
    assert found[2] == {**told, "times": pytest.approx(4)}
    assert exhibit.headline is not None
    said = "faithful 2.00×, tuned 4.00× cuBLAS FP32 (geometric mean, {})"
    assert exhibit.headline(found) == said.format("knn")
    assert len(rows("mixpert-applications", reference)) == 6


def test_the_others_are_measured_when_one_fails_or_the_time_is_over(
    reference: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(place: Place) -> Found:
        raise MixPertError("out of order\nand more")

    bad = replace(run.EXHIBITS["egemm-error"], measure=fail)
    good = run.EXHIBITS["raihan-latency"]
    kept: dict[str, Any] = {}
    run.measure([bad, good], reference, math.inf, kept.__setitem__)
    assert kept[bad.id] == {"failed": "MixPertError: out of order"}
    assert kept[good.id]["rows"]
    run.measure([good], reference, 0, kept.__setitem__)
    assert kept[good.id] == {"missing": "the time given was over"}
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "egemm-error: MixPertError: out of order"
    assert re.fullmatch(r"raihan-latency: \d+\.\d s", lines[1])


def test_no_result_takes_the_place_of_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, id_ = tmp_path / "papers.json", "raihan-latency"
    assert run.run([id_], small=True, seconds=60, path=path, html=None) == 0
    before = run.read(path)
    assert run.run([id_], small=True, seconds=-1, path=path, html=None) == 0

    def fail(place: Place) -> Found:
        raise MixPertError("out of order")

    monkeypatch.setitem(run.EXHIBITS, id_, replace(run.EXHIBITS[id_], measure=fail))
    assert run.run([id_], small=True, seconds=60, path=path, html=None) == 1
    assert run.read(path) == before


def papers(folder: Path, *arguments: str) -> Said:
    return forked("samples.papers", *arguments, folder=folder)


def test_the_command(tmp_path: Path) -> None:
    path, html = tmp_path / "papers.json", tmp_path / "docs" / "papers.html"
    common = ("--small", "--json", str(path), "--html", str(html))
    done = papers(tmp_path, *common, "--only", "markidis-wide")
    assert done.code == 0, done.err
    assert "markidis-wide: " in done.err
    assert "Operands in ±16" in done.out
    done = papers(tmp_path, *common, "--only", "raihan-latency", "--only", "egemm-speed")
    assert done.code == 0, done.err
    entries = run.read(path)["exhibits"]
    assert set(entries) == {"markidis-wide", "raihan-latency", "egemm-speed"}
    assert "reference backend" in entries["markidis-wide"]["where"]
    assert "Operands in ±16" in html.read_text("utf-8")
    assert papers(tmp_path, "--only", "list").out.split() == list(run.EXHIBITS)


def test_bad_input(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text("[]")
    for arguments, said in (
        (("--only", "nothing"), "unknown exhibit or paper 'nothing'"),
        (("--json", str(other), "--small"), f"{other}: not a result of `python -m samples.papers`"),
        (("--save", "--small"), "--save keeps results of full sizes"),
        ((), "this benchmark runs on a GPU: "),
    ):
        done = papers(tmp_path, *arguments)
        assert done.code == 2
        assert said in done.err.splitlines()[-1]
        assert "Traceback" not in done.err


def test_fragments_are_kept_as_words(monkeypatch: pytest.MonkeyPatch, reference: Place) -> None:
    sizes = {"A": (16, 16), "B": (16, 8), "C": (16, 8)}
    parts = [
        Fragment(name, m, n, np.arange(m * n).reshape(32, -1)) for name, (m, n) in sizes.items()
    ]
    monkeypatch.setattr(Gpu, "current", classmethod(lambda cls: None))
    monkeypatch.setattr(raihan, "found_by", lambda gpu: {FRAGMENT: parts})
    a, b, c = rows("raihan-fragments", reference)
    assert (a["columns"], b["columns"], c["columns"]) == (16, 8, 8)
    assert (a["elements"], a["each"], a["copies"]) == (256, 8, 1)
    assert b["places"].split() == list(map(str, range(128)))


def test_what_is_kept_is_shown() -> None:
    record = run.read(run.RESULT)
    assert not any("failed" in entry for entry in record["exhibits"].values())
    assert run.README.read_text("utf-8") == run.markdown(record)
    assert run.RESULT.read_text("utf-8") == run.dumps(record)  # a line a row


@pytest.mark.gpu
def test_what_only_a_gpu_can_answer() -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    here = place.on_gpu(small=True)
    a, b = here.uniform((-1.0, 1.0), 70, 50, 90)
    for name in (baselines.SDK, baselines.SEPARATE_CALLS):
        assert float(abs(here.product(name, a, b) - a @ b).max()) < 1e-5
    stages = rows("legemm-pipeline", here)
    assert {row["stages"] for row in stages} >= {1, 2, 3}
    assert all(row["seconds"] > 0 for row in stages)
    assert len(rows("raihan-fragments", here)) == 9
    assert len(rows("raihan-latency", here)) >= 11
    assert all(row["share"] is None or row["share"] > 0 for row in rows("legemm-roofline", here))
    assert {row["name"] for row in rows("markidis-batched", here)} == set(markidis.BATCHED)


X, Y = Column("x", "X"), Column("y", "Y", ".1f", 10.0)


@pytest.fixture(scope="module")
def whole_record() -> dict[str, Any]:
    """Every exhibit: made on a GPU that is none, and three by hand."""
    found: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("samples.papers.legemm.device_name", lambda place: "NVIDIA H200")
        made = {id_: e for id_, e in run.EXHIBITS.items() if id_ not in BY_HAND}
        run.measure(list(made.values()), on_fake_gpu(), math.inf, found.__setitem__)
    for id_, rows in BY_HAND.items():
        found[id_] = {"where": "By hand.", "note": "", "rows": rows}
    return {"exhibits": found}


def fragment(operand: str, columns: int) -> dict[str, Any]:
    places = np.arange(16 * columns)
    row = {"name": FRAGMENT, "operand": operand, "elements": places.size, "columns": columns}
    return {**row, "each": places.size // 32, "copies": 1, "places": " ".join(map(str, places))}


TIMED = {"scheme": "int8x6", "m": 64, "k": 64, "n": 64, "batch": 1}
TIMED |= {"chosen": "a", "legemm": "a", "tiles": {"a": 2e-5, FIXED: 3e-5}}
BY_HAND = {
    "legemm-tiles": [gains(TIMED)],
    "raihan-correlation": [
        {"name": "int8x6", **dict.fromkeys("mkn", n), "batch": 1, "off": 0.1}
        | {"measured": 1e-5 * n, "predicted": 1.1e-5 * n}
        for n in (64, 128)
    ],
    "raihan-latency": [
        {"name": FRAGMENT, "latency": 33, "chain": 17.5, "interval": 1.1, "rate": 6e14},
    ],
    "raihan-fragments": [fragment("A", 16), fragment("B", 8), fragment("C", 8)],
    "legemm-pipeline": [
        {"name": "N = 64", "tile": "128 × 64", "stages": few, "seconds": 1e-3 / few, "times": few}
        for few in (1, 2, 3)
    ],
    "mixpert-processes": [
        {"name": "int8x6", "processes": n, "n": 64, "tflops": 10.0 + n, "scaling": 1 + n / 10}
        for n in (1, 2, 4)
    ],
}


@pytest.fixture(scope="module")
def text(whole_record: dict[str, Any]) -> str:
    return page(run.PAPERS, whole_record)


def test_everything_is_on_the_page(whole_record: dict[str, Any], text: str) -> None:
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(set(ids)) == len(ids)
    for tag in ("section", "article", "div", "table", "tr", "td", "svg", "details"):
        assert len(re.findall(f"<{tag}[ >]", text)) == text.count(f"</{tag}>")
    assert set(ids) >= set(run.EXHIBITS) | {paper.name for paper in run.PAPERS}
    for id_, entry in whole_record["exhibits"].items():
        assert "failed" not in entry
        if "rows" in entry:
            article = text.partition(f'id="{id_}"')[2].partition("</article>")[0]
            assert "Measured: " in article
            assert article.count("<tr>") == 1 + len(entry["rows"])
            exhibit = run.EXHIBITS[id_]
            assert ("<svg" in article) == (exhibit.picture is not None), id_
            assert all(f"<b>{number.value}</b>" in article for number in exhibit.published)


def test_it_loads_nothing(text: str) -> None:
    links = re.findall(r' (?:href|src)="([^"]*)"', text)
    assert {link.removeprefix("#") for link in links} <= set(re.findall(r' id="([^"]*)"', text))
    assert "<script" not in text
    assert set(re.findall(r"url\((.)", text)) <= {"#"}
    assert "content=\"default-src 'none';" in unescape(text)


def exhibit(**changes: Any) -> Exhibit:
    given = {"id": "one", "of": "fig. 1", "title": "T", "lead": "S", "columns": (X, Y)}
    return Exhibit(**{**given, "measure": lambda place: Found([]), **changes})


def shown(entry: dict[str, Any] | None, **changes: Any) -> str:
    paper = Paper("p", "P", "Cited", "Chip X", (exhibit(**changes),))
    return page((paper,), {"exhibits": {} if entry is None else {"one": entry}})


PUBLISHED = Published("a", "1×", "abstract"), Published("b", "2×", "notes", confirmed=False)
ROWS = [{"x": "<i>", "y": 0.25}, {"x": "j", "y": None}]


@pytest.mark.parametrize(
    ("entry", "changes", "said"),
    [
        (None, {}, "Not measured here: it has not been run"),
        (None, {}, "Measured there on Chip X: not measured here."),
        (None, {}, "published figure; values not transcribed."),
        ({"missing": "too late"}, {}, "Not measured here: too late"),
        ({"failed": "E: <b>"}, {}, "Not measured here: E: &lt;b&gt;"),
        (None, {"published": PUBLISHED}, "Published: a <b>1×</b> (abstract)"),
        (None, {"published": PUBLISHED}, "Published: b <b>2×</b> (unconfirmed: notes)"),
        ({"where": "Here.", "note": "So.", "rows": ROWS}, {}, "Measured: Here. So."),
        ({"where": "", "note": "", "rows": ROWS}, {}, '&lt;i&gt;</td><td class="right">2.5</td>'),
        ({"where": "", "note": "", "rows": ROWS}, {}, '<td>j</td><td class="right">–</td>'),
    ],
)
def test_what_an_exhibit_says(entry: Any, changes: dict[str, Any], said: str) -> None:
    assert said in shown(entry, **changes)


@pytest.mark.parametrize(
    "hostile", ["</script><script>alert(1)</script>", "\"'><img src=x>", "&lt;", "\u202e"]
)
def test_texts_cannot_break_out(hostile: str) -> None:
    rows = [{"name": hostile, "x": 1.0, "y": 2.0}]
    text = shown(
        {"where": hostile, "note": hostile, "rows": rows},
        title=hostile,
        columns=(Column("name", hostile),),
        picture=Lines(X, Y),
        published=(Published(hostile, hostile, hostile),),
    )
    assert "<svg" in text
    assert hostile not in text
    assert hostile not in chart.bars(rows, Bars((X, Y), ("name",)))
