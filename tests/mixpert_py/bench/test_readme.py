"""The parts of README.md and docs/measured.md; those of `mixpert bench gemm` in detail, made from
a result that nobody measured.
"""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mixpert_py.bench import float64, readme
from mixpert_py.bench.commands import bench
from mixpert_py.bench.gemm import pictures, staircase
from mixpert_py.bench.gemm import readme as gemm_readme
from mixpert_py.bench.gemm.plane import Point, dominated, points, sizes
from mixpert_py.bench.gemm.result import Result, read
from mixpert_py.bench.gemm.targets import Target, once
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
    made = suites()
    lines = gemm_readme.sizes_markdown(made["sizes"], ".").splitlines()
    assert lines[0].startswith('<picture><source media="(prefers-color-scheme: dark)"')
    assert 'srcset="./gemm-speed-dark.svg"' in lines[0]
    assert (
        "8192 × 8192 matrices on one NVIDIA H200: faithful 260, int8x6 280, int8x3 520" in lines[0]
    )
    assert "the fastest first: int8x3, int8x6, faithful." in lines[1]
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
    assert "| int8x6 over cuBLAS FP32 | 8192³ | 5.5 × | ≥ 5.3 × | met |" in (
        gemm_readme.targets_markdown(made["targets"])
    )


def test_levels() -> None:
    """Speeds up to the size of the errors, and the worst of all draws of all families."""
    found = sections()
    found["speed 16384³"] = [row("int8x6", 16384, tflops=1.0)]
    found["accuracy spread 4096³"] = [
        row("int8x6", 4096, family="spread", frobenius=0.25),
        row("cuBLAS TF32", 4096, family="spread", frobenius="nan"),
        row("cuBLAS FP64", 4096, family="spread", frobenius=0.0),
    ]
    loop = {"n": 4096, "native": {"median": 3000.0}, "ours": {"median": 687.194767}, "ratio": 4.366}
    found["loops"] = [loop]
    judged = {"draws": 3, "frobenius_over": 1.0}
    found["families spikes 4096³"] = [
        row("int8x6", 4096, family="spikes", frobenius=0.5, **judged),
        row("faithful", 4096, family="spikes", frobenius=2e-6, **judged),
        row("bf16x6", 4096, family="spikes", failed="boom", draws=3),
    ]
    lines = gemm_readme.levels_markdown({"machine": MACHINE, "sections": found}).splitlines()
    assert lines[0] == "|  | 4096³ | 8192³ | error at 8192³ | worst family at 4096³ |"
    assert [line.split(" | ")[0].strip("| ") for line in lines[2:10]] == list(gemm_readme.LEVELS)
    assert "| cuBLAS FP64 | 55 (1.1×) | 55 (1.1×) | – | – |" in lines
    assert "| cuBLAS TF32 | 402 (7.9×) | 381 (7.5×) | 2.9e-04 | inf (spread) |" in lines
    assert "| faithful | 240 (4.7×) | 260 (5.1×) | 9.0e-07 | 2.0e-06 (spikes) |" in lines
    assert "| int8x6 | 260 (5.1×) | 280 (5.5×) | 1.0e-06 | 5.0e-01 (spikes) |" in lines
    assert "| int8x10 | – | – | – | – |" in lines
    assert "| faithful, called in a loop | 200 (4.4×) | – |  |  |" in lines
    assert "the largest on 3 families" in lines[-1]
    assert lines[-1].endswith("CuPy 14.2.0, 2026-11-21.")


def test_speeds_alone(tmp_path: Path) -> None:
    """As a run that was cut short leaves them."""
    found = suites()
    speeds = {name: rows for name, rows in sections().items() if name.startswith("speed")}
    found["sizes"]["sections"] = speeds
    made = gemm_readme.sizes_markdown(found["sizes"], "docs")
    assert "|  | 4096³ | 8192³ |\n" in made
    assert "| int8x6 | 260 (5.1×) | 280 (5.5×) |\n" in made
    assert "error" not in made
    assert "accuracy" not in made
    pytest.importorskip("matplotlib")
    drawn = [path.name for path in pictures.draw(speeds, "x", tmp_path)]
    assert drawn == ["gemm-speed.svg", "gemm-speed-dark.svg"]


def marks(*names: str, inside: str = "") -> str:
    return "\n".join(f"a\n<!-- bench {name} -->\n{inside}<!-- end -->\nb\n" for name in names)


def test_parts_are_put_where_the_marks_are() -> None:
    made = {"gemm": "new \\1\n", "soak": "not here\n"}
    changed = marks("gemm", inside="new \\1\n") + marks("targets", inside="old\n")
    before = marks("gemm", "targets", inside="old\n").replace("b\n\na", "b\na")
    assert readme.filled(before, made) == changed
    assert readme.filled(changed, made) == changed
    assert readme.filled("nothing", made) == "nothing"


def pages(folder: Path, *, first: str, second: str) -> tuple[Path, Path]:
    (folder / "docs").mkdir()
    paths = folder / "README.md", folder / "docs" / "measured.md"
    for path, text in zip(paths, (first, second), strict=True):
        path.write_text(text, "utf-8")
    return paths


def test_each_page_gets_the_parts_that_it_has_marks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {"gemm": lambda docs: f"![]({docs}/a.svg)\n", "soak": lambda docs: "table\n"}
    monkeypatch.setattr(readme, "PARTS", {**parts, "apps": lambda docs: None})
    drawn: list[Path] = []
    monkeypatch.setattr(readme, "PICTURES", (drawn.append,))
    one, other = pages(tmp_path, first=marks("gemm", "apps"), second=marks("soak", "gemm"))
    readme.update(one)
    assert one.read_text(
        "utf-8"
    ) == "a\n<!-- bench gemm -->\n![](docs/a.svg)\n<!-- end -->\nb\n\n" + (
        marks("apps")  # of which nothing is kept
    )
    assert "table\n<!-- end -->" in other.read_text("utf-8")
    assert "![](./a.svg)\n<!-- end -->" in other.read_text("utf-8")
    assert drawn == [tmp_path / "docs"]


def test_a_part_without_a_mark_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {"gemm": lambda docs: "table\n", "soak": lambda docs: "table\n"}
    monkeypatch.setattr(readme, "PARTS", parts)
    monkeypatch.setattr(readme, "PICTURES", ())
    paths = pages(tmp_path, first=marks("gemm"), second="nothing")
    with pytest.raises(MixPertError, match="no <!-- bench soak --> … <!-- end -->"):
        readme.update(paths[0])
    assert [path.read_text("utf-8") for path in paths] == [marks("gemm"), "nothing"]
    paths[1].unlink()
    paths[0].write_text(marks("gemm", "soak"), "utf-8")
    readme.update(paths[0])
    assert paths[0].read_text("utf-8") == marks("gemm", "soak", inside="table\n")


def test_nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readme, "PARTS", {"gemm": lambda docs: None})
    with pytest.raises(MixPertError, match="no results are kept"):
        readme.parts()


@pytest.mark.parametrize(("page", "docs"), [("README.md", "docs"), ("docs/measured.md", ".")])
def test_the_pages_hold_what_the_kept_results_say(page: str, docs: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    assert readme.filled(text, readme.parts(docs)) == text


def test_every_part_has_one_place() -> None:
    texts = [(ROOT / page).read_text("utf-8") for page in ("README.md", "docs/measured.md")]
    found = [name for text in texts for _, name, _ in readme.MARKED.findall(text)]
    assert sorted(found) == sorted(readme.PARTS)


def test_what_is_not_kept_has_no_part(tmp_path: Path) -> None:
    assert readme.without_gpu(tmp_path) is None
    assert readme.written_table("model", tmp_path) is None
    assert readme.gates(tmp_path) is None
    assert gemm_readme.saved("sizes", tmp_path) is None
    Result("sizes", MACHINE, tmp_path / "gemm.json", False).write()
    assert gemm_readme.saved("sizes", tmp_path) == read(tmp_path / "gemm.json")


def test_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    first = pictures.draw(sections(), "NVIDIA H200", tmp_path / "a")
    again = pictures.draw(sections(), "NVIDIA H200", tmp_path / "b")
    names = ["gemm-speed", "gemm-accuracy", "staircase"]
    assert [path.stem for path in first] == [f"{n}{form}" for n in names for form in ("", "-dark")]
    for one, other in zip(first, again, strict=True):
        assert one.read_bytes() == other.read_bytes()
        assert len(one.read_bytes()) < 60_000
    speed, plane, stairs = (path.read_text("utf-8") for path in first[::2])
    assert "matrices on one NVIDIA H200" in speed
    assert ">cuBLAS TF32<" in plane
    assert ">int8x6<" in plane
    assert "FP64" not in plane  # the reference itself
    assert ">faithful 4.7×, the default<" in stairs
    assert ">int8x3 9.8×<" in stairs
    assert ">cuBLAS TF32<" in stairs


def test_the_staircase_descends() -> None:
    """A level that another beats is no step, nor is what the tuner never chooses."""
    found = staircase.steps(sections())
    assert [step.name for step in found] == ["faithful", "int8x6", "int8x3"]
    worse = {**FIGURES, "int8x6": (230.0, 280.0, 1.0e-6, "BC")}
    beaten = {
        "speed 4096³": [row(name, 4096, tflops=it[0]) for name, it in worse.items()],
        "accuracy": [
            row(name, 4096, family="normal", frobenius=it[2]) for name, it in worse.items()
        ],
    }
    assert [step.name for step in staircase.steps(beaten)] == ["faithful", "int8x3"]
    assert "int8x3 is 9.8 times as fast at an error of 9.8e-05." in (
        staircase.alternative(sections(), "x")
    )
    assert not staircase.is_known({"speed 4096³": beaten["speed 4096³"]})


def test_float64_descends_from_fp64(tmp_path: Path) -> None:
    """A beaten scheme is no step, and the steps are compared with cuBLAS's FP64 product."""
    at = {"cuBLAS FP64": (50, 3e-15), "crt16": (60, 5e-17), "crt14": (75, 1e-15)}
    at |= {"crt12": (90, 4e-13), "crt9": (120, 2e-9), "int8x10": (45, 3e-9)}
    rows = [
        {"name": name, "n": n, "tflops": tflops, "over_native": tflops / 50, "error": error}
        for n in float64.SIZES
        for name, (tflops, error) in at.items()
    ]
    facts = {"device": "NVIDIA H200", "cuda": "13.2", "cublas": "13.1.0", "date": "2026-01-01"}
    text = float64.markdown({"rows": rows, "machine": facts}, "docs")
    assert "where cuBLAS FP64 has an error of 3.0e-15: crt16 is 1.2 times as fast" in text
    assert "int8x10" not in text
    assert "| crt14 | 75 (1.5×) | 75 (1.5×) | 75 (1.5×) | 1.0e-15 |" in text
    pytest.importorskip("matplotlib")
    drawn, _ = float64.draw({"rows": rows, "machine": facts}, tmp_path)
    assert ">crt9 2.4×<" in drawn.read_text("utf-8")


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "matplotlib" else found(name)
    )
    with pytest.raises(MixPertError, match=r"pip install 'mixpert-py\[report\]'"):
        pictures.draw(sections(), "x", tmp_path)


def test_the_command(tmp_path: Path) -> None:
    printed = CliRunner().invoke(bench, ["readme"])
    assert printed.exit_code == 0
    assert printed.output == "\n".join(readme.parts().values())
    absent = CliRunner().invoke(bench, ["readme", "--into", str(tmp_path / "README.md")])
    assert absent.exit_code == 2
    assert "does not exist" in absent.output
