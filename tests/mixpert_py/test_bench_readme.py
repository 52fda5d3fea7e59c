"""Tables and pictures of `mixpert bench gemm`, made from a result that nobody measured."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from mixpert_py.bench import predictions
from mixpert_py.bench.gemm import pictures
from mixpert_py.bench.gemm import readme as gemm_readme
from mixpert_py.bench.gemm.plane import Point, dominated, points, sizes
from mixpert_py.bench.gemm.result import Result, read
from mixpert_py.bench.gemm.target import Target, once
from mixpert_py.bench.machine import RESULTS
from mixpert_py.bench.soak import verdict as soak
from mixpert_py.errors import MixPertError
from tests.mixpert_py.command import ROOT

MACHINE = {
    "device": "NVIDIA H200",
    "driver": "13.0",
    "cuda": "13.0",
    "cublas": "13.1.0",
    "cupy": "14.2.0",
    "date": "2026-11-21",
    "not offered": {"cuBLAS BF16x9": "not offered: CUBLAS_STATUS_NOT_SUPPORTED"},
}
# name → TFLOP/s at 4096³ and 8192³, error, grade on the second family
FIGURES = {
    "cuBLAS FP32": (51.0, 51.0, 1.1e-6, "ABC"),
    "cuBLAS TF32": (402.0, 381.0, 2.9e-4, ""),
    "cuBLAS FP64": (55.0, 55.0, 0.0, "ABC"),
    "faithful": (240.0, 260.0, 9e-7, "BC"),
    "int8x6": (260.0, 280.0, 1.0e-6, "BC"),
    "int8x3": (500.0, 520.0, 9.8e-5, ""),
}


def row(name: str, size: int, **more: Any) -> dict[str, Any]:
    kind = "vendor" if "cuBLAS" in name else "scheme"
    return {"name": name, "kind": kind, "m": size, "k": size, "n": size, **more}


def sections() -> dict[str, list[dict[str, Any]]]:
    made: dict[str, list[dict[str, Any]]] = {}
    for i, size in enumerate((4096, 8192)):
        made[f"speed {size}³"] = [
            row(name, size, tflops=figures[i], speedup={"median": figures[i] / 51})
            for name, figures in FIGURES.items()
        ]
        for family in ("normal", "spikes"):
            made[f"accuracy {family} {size}³"] = [
                row(name, size, family=family, frobenius=error, grade="ABC" if i else grade)
                for name, (*_, error, grade) in FIGURES.items()
            ]
    made["speed 4096 × 64 × 8"] = [{**row("int8x6", 8), "m": 4096, "k": 64, "tflops": 1.0}]
    made["speed 8192³"].append(row("egemm", 8192, failed="boom"))
    made["speed 4096³"].append(row("fp16", 4096, tflops=9.0, ran="native (too small)"))
    return made


def suites() -> dict[str, dict[str, Any]]:
    target = Target("int8x6", "int8x6 over cuBLAS FP32", "8192³", "≥", 5.3, "×")
    return {
        "sizes": {"suite": "sizes", "machine": MACHINE, "sections": sections()},
        "targets": {
            "suite": "targets",
            "machine": MACHINE,
            "sections": {"int8x6": [target.row(once(5.5))]},
        },
    }


def test_which_are_dominated() -> None:
    found = [
        Point("fast", "scheme", 9.0, 1e-3),
        Point("good", "scheme", 5.0, 1e-6),
        Point("slow", "vendor", 4.0, 1e-6),
        Point("poor", "vendor", 5.0, 1e-2),
        Point("twin", "vendor", 5.0, 1e-6),
        Point("best", "vendor", 9.0, 1e-3),
        Point("last", "scheme", 0.5, 1e-9),
    ]
    assert dominated(found) == {"slow": "good", "poor": "fast"}


def test_points_of_the_plane() -> None:
    found = points(sections(), 8192)
    assert [point.name for point in found] == [name for name in FIGURES if "64" not in name]
    assert dominated(found) == {"cuBLAS FP32": "int8x6", "cuBLAS TF32": "int8x3"}
    assert sizes(sections()) == [4096, 8192]


def test_tables() -> None:
    made = gemm_readme.parts(suites())
    lines = made["gemm"].splitlines()
    assert "|  | 4096³ | 8192³ | error at 8192³ | grades |" in lines
    assert "| int8x6 | 260 (5.1×) | 280 (5.5×) | 1.0e-06 | BC |" in lines
    assert "| int8x3 | 500 (9.8×) | 520 (10.2×) | 9.8e-05 | – |" in lines
    assert "| cuBLAS FP64 | 55 (1.1×) | 55 (1.1×) | – | ABC |" in lines
    assert "| fp16 | 9 native | – | – | – |" in lines
    assert not any("egemm" in line for line in lines)  # it failed
    assert lines[-1] == gemm_readme.MADE
    assert lines[-2].endswith(
        "One NVIDIA H200, driver for CUDA 13.0, CUDA 13.0, cuBLAS 13.1.0, CuPy 14.2.0, 2026-11-21. "
        "cuBLAS BF16x9 is not offered: CUBLAS_STATUS_NOT_SUPPORTED."
    )
    assert "| int8x6 over cuBLAS FP32 | 8192³ | 5.5 × | ≥ 5.3 × | met |" in made["targets"]


def test_speeds_alone(tmp_path: Path) -> None:
    """As a run that was cut short leaves them."""
    found = suites()
    speeds = {name: rows for name, rows in sections().items() if name.startswith("speed")}
    found["sizes"]["sections"] = speeds
    made = gemm_readme.parts(found)["gemm"]
    assert "|  | 4096³ | 8192³ |\n" in made
    assert "| int8x6 | 260 (5.1×) | 280 (5.5×) |\n" in made
    assert "error" not in made
    assert "accuracy" not in made
    pytest.importorskip("matplotlib")
    assert [path.name for path in pictures.draw(speeds, "x", tmp_path)] == ["gemm-speed.svg"]


def test_parts_are_put_where_the_marks_are() -> None:
    text = "a\n<!-- bench gemm -->\nold\n<!-- end -->\nb\n<!-- bench targets -->\n<!-- end -->\n"
    made = {"gemm": "new \\1\n"}
    changed = (
        "a\n<!-- bench gemm -->\nnew \\1\n<!-- end -->\nb\n<!-- bench targets -->\n<!-- end -->\n"
    )
    assert gemm_readme.updated(text, made) == changed
    assert gemm_readme.updated(changed, made) == changed
    with pytest.raises(MixPertError, match="<!-- bench gemm -->"):
        gemm_readme.updated("nothing", made)


def test_the_readme_holds_what_the_kept_results_say() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    parts = {"gemm", "targets", "model", "apps", "papers", "soak"}
    assert {name for _, name, _ in gemm_readme.MARKED.findall(text)} == parts
    model = json.loads((RESULTS / "model.json").read_text("utf-8"))
    parts = gemm_readme.parts(gemm_readme.results()) | {"model": predictions.markdown(model)}
    parts["soak"] = soak.markdown(soak.read())
    assert gemm_readme.updated(text, parts) == text
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", text):
        assert (ROOT / picture).is_file(), picture


def test_kept_results_are_read(tmp_path: Path) -> None:
    assert gemm_readme.results(tmp_path) == {}
    Result("sizes", MACHINE, tmp_path / "gemm.json", False).write()
    assert gemm_readme.results(tmp_path) == {"sizes": read(tmp_path / "gemm.json")}


def test_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    first = pictures.draw(sections(), "NVIDIA H200", tmp_path / "a")
    again = pictures.draw(sections(), "NVIDIA H200", tmp_path / "b")
    assert [path.name for path in first] == ["gemm-speed.svg", "gemm-accuracy.svg"]
    for one, other in zip(first, again, strict=True):
        assert one.read_bytes() == other.read_bytes()
        assert len(one.read_bytes()) < 60_000
    speed, plane = (path.read_text("utf-8") for path in first)
    assert "Speed on one NVIDIA H200" in speed
    assert ">cuBLAS TF32 (by int8x3)<" in plane
    assert ">int8x6<" in plane
    assert "FP64" not in plane  # the reference itself


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "matplotlib" else found(name)
    )
    with pytest.raises(MixPertError, match=r"pip install 'mixpert-py\[report\]'"):
        pictures.draw(sections(), "x", tmp_path)
