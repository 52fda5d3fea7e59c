"""Notebooks as programs: `run`, `tune` and `verify` take them as they take scripts."""

import json
from pathlib import Path

import pytest

from mixpert_py.plan import load
from mixpert_py.sources import notebook_file
from tests.mixpert_py.command import Mixpert

CELLS = (
    "%%bash\nls",
    "%matplotlib inline\nimport numpy as np\na = np.random.default_rng(0).random((96, 96))",
    "%%time\ndef f(x):\n    return x @ x / 96",
    "b = f(a)\ndisplay(b.shape)\n!ls",
)


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    cells = [{"cell_type": "code", "source": text, "metadata": {}, "outputs": []} for text in CELLS]
    path = tmp_path / "n.ipynb"
    found = {"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": cells}
    path.write_text(json.dumps(found), "utf-8")
    return path


LEFT_OUT = "n.ipynb: left out, as no Python or another magic's: cell_1\n"


def test_its_cells_run_as_one_program(notebook: Path, mixpert: Mixpert) -> None:
    said = mixpert("run", "-q", "--json", "p.json", "n.ipynb")
    assert (said.code, said.out, said.err) == (0, "(96, 96)\n", LEFT_OUT)
    [record] = json.loads((notebook.parent / "p.json").read_text("utf-8"))
    assert (record["id"][:4], record["path"], record["line"]) == ("n:f/", "cell_3", 3)


def test_it_is_tuned_verified_and_run_under_its_plan(notebook: Path, mixpert: Mixpert) -> None:
    said = mixpert("tune", "--error", "1e-2", "--backend", "reference", "--json", "n.ipynb")
    assert said.code == 0, said.err
    assert json.loads(said.out)["operators"][0]["line"] == 3
    plan = load(notebook.parent / "n.mixpert.toml")
    [site] = plan.site
    assert site.scheme != "native"
    said = mixpert("verify", "--backend", "reference", "--json", "n.mixpert.toml", "n.ipynb")
    assert said.code == 0, said.err
    verified = json.loads(said.out)
    assert (verified["holds"], verified["worst"]) == (True, "b")
    assert 1e-5 < verified["error"] < 1e-2  # int8x1's, so it has run under the plan
    mixpert("run", "--backend", "reference", "--json", "p.json", "n.ipynb")
    [record] = json.loads((notebook.parent / "p.json").read_text("utf-8"))
    assert record["schemes"] == {site.scheme: 1}
    said = mixpert("report", "n.mixpert.toml", "--html", "page")
    assert said.code == 0, said.err
    assert "has changed since" not in (notebook.parent / "page/index.html").read_text("utf-8")


def test_processes_that_it_spawns_do_not_run_it(notebook: Path, mixpert: Mixpert) -> None:
    found = json.loads(notebook.read_text("utf-8"))
    found["cells"][3]["source"] = (
        "import multiprocessing\nwith multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "    print(pool.map(abs, [-1]))"
    )
    notebook.write_text(json.dumps(found), "utf-8")
    said = mixpert("run", "-q", "n.ipynb")
    assert (said.code, said.out) == (0, "[1]\n"), said.err


def test_an_error_names_its_cell(notebook: Path, mixpert: Mixpert) -> None:
    found = json.loads(notebook.read_text("utf-8"))
    found["cells"][3]["source"] = "b = f(a)\nb[99]"
    notebook.write_text(json.dumps(found), "utf-8")
    said = mixpert("run", "-q", "n.ipynb")
    assert said.code == 1
    assert said.err.endswith("size 96\nLine 8 of all cells is cell_4, line 2.\n"), said.err
    assert '.ipynb", line 8, in <module>\n    b[99]\n' in said.err


def test_a_cell_that_python_refuses_is_named(notebook: Path, mixpert: Mixpert) -> None:
    found = json.loads(notebook.read_text("utf-8"))
    found["cells"][3]["source"] = "b = f(a)\nawait b"
    notebook.write_text(json.dumps(found), "utf-8")
    said = mixpert("run", "-q", "n.ipynb")
    assert (said.code, said.out) == (1, "")
    assert "n.ipynb: cell_4, line 2: 'await' outside function" in said.err


def test_newlines_of_windows_and_timed_lines_are_run(notebook: Path, mixpert: Mixpert) -> None:
    found = json.loads(notebook.read_text("utf-8"))
    cell = "for _ in range(2):\n    %time b = \\\n        f(a)\n%timeit f(a)\nprint(b.shape)"
    found["cells"][3]["source"] = cell.replace("\n", "\r\n")
    notebook.write_text(json.dumps(found), "utf-8")
    said = mixpert("run", "-q", "--json", "p.json", "n.ipynb")
    assert (said.code, said.out, said.err) == (0, "(96, 96)\n", LEFT_OUT)
    [record] = json.loads((notebook.parent / "p.json").read_text("utf-8"))
    assert record["calls"] == 2


def test_other_languages_are_refused(notebook: Path, mixpert: Mixpert) -> None:
    found = json.loads(notebook.read_text("utf-8"))
    found["metadata"] = {"language_info": {"name": "R"}}
    notebook.write_text(json.dumps(found), "utf-8")
    said = mixpert("run", "n.ipynb")
    assert (said.code, said.out) == (2, "")
    assert "n.ipynb: a notebook of another language than Python" in said.one_clear_line()


def test_lines_are_those_of_the_cells(notebook: Path) -> None:
    raw = notebook.read_bytes()
    lines = notebook_file.notebook_text(raw).decode().split("\n")
    for text, (cell, line) in zip(lines, notebook_file.cell_lines(raw), strict=True):
        assert text in ("pass", CELLS[cell - 1].split("\n")[line - 1])
    assert notebook_file.left_out(raw) == ["cell_1"]
