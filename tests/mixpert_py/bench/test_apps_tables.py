"""What `mixpert bench apps` prints and draws, from a result that nobody measured."""

import math
import re
from pathlib import Path
from typing import Any

import pytest

from mixpert_py.bench import machine
from mixpert_py.bench.apps import modes, pictures, readme, run, summary, tables
from mixpert_py.bench.apps.app import APPS
from mixpert_py.bench.readme import filled
from tests.mixpert_py.bench.test_readme import MACHINE

NAMES = (modes.FP32, modes.TF32, modes.FAITHFUL, modes.TUNED)


def mode(name: str, seconds: float, error: float) -> dict[str, Any]:
    times = {"median": seconds, "lower": seconds, "upper": seconds, "runs": 5}
    wall = {**times, "median": 2 * seconds}
    return {"name": name, "device": times, "wall": wall, "error": error, "figure": 0.5}


def app(name: str, seconds: tuple[float, ...], errors: tuple[float, ...]) -> dict[str, Any]:
    return {
        "name": name,
        "arguments": [],
        "budget": 1e-4,
        "alike_below": 0.0,
        "tuned": {"budget": 1e-4},
        "modes": [mode(*row) for row in zip(NAMES, seconds, errors, strict=True)],
    }


def host(name: str, native: float, rewritten: float) -> dict[str, Any]:
    record = {"name": name, "arguments": [], "budget": 1e-5, "native": native, "error": 1e-6}
    figures = {"figure": 0.25, "native_figure": 0.5}
    sites = [{"seconds": 0.25 * rewritten}, {"seconds": 0.5 * rewritten}]
    return {
        **record,
        **figures,
        "sites": sites,
        "rewritten": rewritten,
        "speedup": native / rewritten,
    }


def result() -> dict[str, Any]:
    return {
        "machine": {**MACHINE, "cores": 16, "cpu": "a processor"},
        "size": "paper",
        "apps": [
            app("knn", (0.08, 0.02, 0.02, 0.01), (1e-6, 1e-3, 1e-7, 5e-5)),
            app("mlp", (0.01, 0.005, 0.005, 0.005), (1e-6, 1e-3, 1e-6, 9e-5)),
        ],
        "host": [host("knn", 20.0, 2.0), host("gp", 30.0, 1.5)],
    }


def rows(made: dict[str, Any]) -> dict[str, Any]:
    return {row["what"]: row for row in summary.targets(made["apps"], made["host"])}


def test_geometric_means() -> None:
    assert summary.geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert math.isnan(summary.geometric_mean([]))
    exact, tuned, slowest, on_host = rows(result()).values()
    assert exact == {**exact, "measured": pytest.approx(math.sqrt(8)), "wanted": 2.5, "met": True}
    assert tuned == {**tuned, "measured": pytest.approx(4.0), "wanted": 3.5, "met": True}
    assert slowest == {**slowest, "measured": 2.0, "met": True}
    assert on_host == {**on_host, "measured": pytest.approx(10.0), "wanted": 8.0, "met": True}


def test_faithful_counts_where_it_is_as_accurate() -> None:
    made = result()
    made["apps"][0]["modes"][2]["error"] = 2e-6
    exact, *_ = rows(made).values()
    assert exact["measured"] == pytest.approx(math.sqrt(1 * 2))
    made["apps"][0]["alike_below"] = 1e-5  # it refines what it computes
    exact, *_ = rows(made).values()
    assert exact["measured"] == pytest.approx(math.sqrt(4 * 2))


def test_a_plan_over_its_budget_gains_nothing() -> None:
    made = result()
    made["apps"][0]["modes"][3]["error"] = float("nan")
    _, tuned, *_ = rows(made).values()
    assert tuned["measured"] == pytest.approx(math.sqrt(1 * 2))
    assert not tuned["met"]


def test_what_failed_misses_every_target() -> None:
    made = result()
    made["apps"].append({"name": "gp", "budget": 1e-4, "failed": "OSError: gone"})
    made["host"].append({"name": "pca", "budget": 1e-5, "failed": "OSError: gone"})
    assert not any(row["met"] for row in rows(made).values())
    told = tables.target_rows(made)
    assert [row[-1] for row in told] == ["missed: gp failed"] * 3 + ["missed: pca failed"]
    assert told[0][1] == "2.83 ×"  # of the others
    only = {**made, "apps": made["apps"][2:], "host": []}
    assert next(row[1:] for row in tables.target_rows(only)) == [
        "–",
        "≥ 2.5 ×",
        "missed: gp failed",
    ]
    assert tables.rows(made["apps"])[2] == ["gp", "OSError: gone"]
    assert tables.host_rows(made["host"])[2] == ["pca", "OSError: gone"]
    assert tables.failures(made) == ["gp: OSError: gone", "pca: OSError: gone"]


@pytest.mark.parametrize("worst", [16.0, float("nan")])
def test_a_residual_that_does_not_pass_misses(worst: float) -> None:
    made = result()
    made["apps"][0]["name"] = "hpl-ai"
    made["apps"][0]["modes"][3]["figure"] = worst
    (row,) = [row for row in tables.target_rows(made) if row[0].startswith("HPL-AI")]
    assert row[1:] == ["16" if worst == 16.0 else "–", "< 16", "missed"]


def test_a_failed_mode_is_named() -> None:
    made = result()
    made["apps"][0]["modes"][3] = {"name": modes.TUNED, "failed": "RuntimeError: boom"}
    made["apps"][1]["modes"][0] = {"name": modes.FP32, "failed": "RuntimeError: bang"}
    knn, mlp, mean = tables.rows(made["apps"])
    assert knn == ["knn", "80", "4.00×", "4.00×", "failed", "1.0e-06", "1.0e-03", "1.0e-07", "–"]
    assert mlp == ["mlp", "RuntimeError: bang"]
    assert mean[2:] == ["4.00×", "4.00×", "–"]
    said = pictures.accuracy_alternative(made["apps"])
    assert "1 are at least as accurate without" in said
    assert "and 1 stay within" in said
    assert tables.failures(made) == [
        "knn: tuned: RuntimeError: boom",
        "mlp: cuBLAS FP32: RuntimeError: bang",
    ]


def test_the_part_of_the_readme() -> None:
    made = readme.part(result(), "docs")
    assert "| knn | 80 | 4.00× | 4.00× | 8.00× | 1.0e-06 | 1.0e-03 | 1.0e-07 | 5.0e-05 |" in made
    assert "| geometric mean |  | 2.83× | 2.83× | 4.00× |" in made
    assert "| gp | 30.0 | 1.50 | 1.12 | 20.0× | 1.0e-06 | 0.5 | 0.25 |" in made
    assert "a plan tuned for 0.0001;" in made
    assert "16 cores of a processor" in made
    assert "tuned for 1e-05: what" in made
    slowest = "| NumPy programs, the slowest | 10.00 × (knn) | ≥ 8 × "
    assert f"{slowest}| met so far, 2 of 4 measured |" in made
    assert "faithful or tuned | 2.00 × (mlp) | ≥ 0.98 × | met so far, 2 of 12 measured |" in made
    assert "Applications not measured yet: kmeans, cholesky, hpl-ai, comet, " in made
    assert "NumPy programs not measured yet: cholesky, pca." in made
    whole = {**result(), "apps": [{**result()["apps"][0], "name": name} for name in APPS]}
    whole["host"] = [host(name, 20.0, 2.0) for name, app in APPS.items() if app.host]
    made = readme.part(whole, "docs")
    assert "| ≥ 2.5 × | met |" in made
    assert "not measured yet" not in made
    assert "| HPL-AI, largest scaled residual of all modes | 0.5 | < 16 | met |" in made
    assert 'srcset="docs/apps-speed-dark.svg"' in made
    assert "4.0 times as fast without a plan and 8.0 times as fast under tuned plans" in made
    assert "Of 12 applications, 12 are at least as accurate without a plan" in made
    assert "apps-speed" not in readme.part({**result(), "apps": []}, "docs")
    text = "<!-- bench apps -->\nold\n<!-- end -->\n"
    assert filled(text, {"apps": made}) == f"<!-- bench apps -->\n{made}<!-- end -->\n"


def test_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = pictures.draw(result()["apps"], "a GPU", tmp_path)
    assert [path.name for path in drawn] == [
        "apps-speed.svg",
        "apps-speed-dark.svg",
        "apps-accuracy.svg",
        "apps-accuracy-dark.svg",
    ]
    light, dark = (path.read_text("utf-8") for path in drawn[:2])
    assert "geometric mean" in light
    assert "#ffffff" in light
    assert "#0d1117" in dark
    assert "#ffffff" not in dark
    again = pictures.draw(result()["apps"], "a GPU", tmp_path)
    assert again[0].read_text("utf-8") == light


def test_what_is_kept_has_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(machine, "RESULTS", tmp_path)
    assert readme.kept_part("docs") is None
    assert readme.numpy_sentence() is None
    readme.draw(tmp_path / "docs")
    assert not (tmp_path / "docs").exists()
    run.write(result(), tmp_path / run.NAME)
    kept = readme.kept_part("docs")
    assert kept == readme.part(result(), "docs")
    sentence = readme.numpy_sentence()
    assert sentence is not None
    assert "on 16 cores of a processor" in sentence
    assert sentence.endswith("tuned for 1e-05, 2026-11-21: knn 10.0×, gp 20.0× as fast.\n")
    readme.draw(tmp_path / "docs")
    for picture in re.findall(r'(?:src|srcset)="(.*?)"', kept):
        assert (tmp_path / picture).is_file(), picture


def test_a_result_of_another_device_is_replaced(tmp_path: Path) -> None:
    path, other = tmp_path / "apps.json", {**result(), "machine": {"device": "another"}}
    run.write(result(), path)
    again = {**result()["apps"][1], "arguments": ["newer"]}
    run.write({**result(), "apps": [again], "host": []}, path)
    kept = run.read(path)
    assert kept is not None
    assert [record["name"] for record in kept["apps"]] == ["knn", "mlp"]
    assert kept["apps"][1] == again
    assert [record["name"] for record in kept["host"]] == ["knn", "gp"]
    run.write({**other, "apps": [], "host": []}, path)
    kept = run.read(path)
    assert kept is not None
    assert (kept["apps"], kept["host"]) == ([], [])
    path.write_text("no result")
    assert run.read(path) is None
