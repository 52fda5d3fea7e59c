"""Notebooks as programs: `run`, `tune` and `verify` take them as they take scripts."""

import json
from typing import Any

from mixpert_py.plan import load
from mixpert_py.sources import notebook_file
from tests.mixpert_py.command import Shell

CELLS = (
    "%%bash\nls",
    "%matplotlib inline\nimport numpy as np\na = np.random.default_rng(0).random((96, 96))",
    "%%time\ndef f(x):\n    return x @ x / 96",
    "b = f(a)\ndisplay(b.shape)\n!ls",
)


LEFT_OUT = "n.ipynb: left out, as no Python or another magic's: cell_1\n"


def write(sh: Shell, last: str = CELLS[-1], **metadata: Any) -> bytes:
    """A notebook; last: the source of its fourth cell."""
    cells = [
        {"cell_type": "code", "source": text, "metadata": {}, "outputs": []}
        for text in (*CELLS[:-1], last)
    ]
    found = {"nbformat": 4, "nbformat_minor": 4, "metadata": metadata, "cells": cells}
    sh.write({"n.ipynb": json.dumps(found)})
    return (sh.folder / "n.ipynb").read_bytes()


def test_its_cells_run_as_one_program(sh: Shell) -> None:
    write(sh)
    sh("run --json p.json n.ipynb", out="(96, 96)\n", err=LEFT_OUT)
    (record,) = json.loads(sh.read("p.json"))
    assert (record["id"][:4], record["path"], record["line"]) == ("n:f/", "cell_3", 3)
    # Newlines of Windows and timed lines
    cell = "for _ in range(2):\n    %time b = \\\n        f(a)\n%timeit f(a)\nprint(b.shape)"
    write(sh, cell.replace("\n", "\r\n"))
    sh("run --json p.json n.ipynb", out="(96, 96)\n", err=LEFT_OUT)
    assert json.loads(sh.read("p.json"))[0]["calls"] == 2
    # Processes that it spawns do not run it.
    write(
        sh,
        "import multiprocessing\nwith multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "    print(pool.map(abs, [-1]))",
    )
    sh("run n.ipynb", out="[1]\n")


def test_it_is_tuned_verified_and_run_under_its_plan(sh: Shell) -> None:
    write(sh)
    found = sh.json("tune --error 1e-2 --backend reference --json n.ipynb")
    assert found["operators"][0]["line"] == 3
    (site,) = load(sh.folder / "n.mixpert.toml").site
    assert site.scheme != "native"
    verified = sh.json("verify --backend reference --json n.mixpert.toml n.ipynb")
    assert (verified["holds"], verified["worst"]) == (True, "b")
    assert 1e-5 < verified["error"] < 1e-2  # int8x1's, so it has run under the plan
    (record,) = sh.profile("--backend reference n.ipynb")
    assert record["schemes"] == {site.scheme: 1}
    sh("report n.mixpert.toml --html page")
    assert "has changed since" not in sh.read("page/index.html")


def test_an_error_shows_its_line(sh: Shell) -> None:
    write(sh, "b = f(a)\nb[99]")
    sh("run n.ipynb", 1, err='.ipynb", line 8, in <module>\n    b[99]\n ')
    write(sh, "b = f(a)\nawait b")
    sh("run n.ipynb", 1, out="", err="n.ipynb: line 8: 'await' outside function")
    write(sh, language_info={"name": "R"})
    told = "n.ipynb: a notebook of another language than Python"
    assert told in sh("run n.ipynb", 2, out="").one_clear_line()


def test_cells_that_are_left_out_are_known(sh: Shell) -> None:
    assert notebook_file.left_out(write(sh)) == ["cell_1"]
