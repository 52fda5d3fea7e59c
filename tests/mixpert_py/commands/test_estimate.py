"""`mixpert estimate`: whether a program can gain, in a sentence, or one clear line."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mixpert_py.commands.estimate import Options
from mixpert_py.tuner.estimate import Place
from tests.mixpert_py.command import Mixpert

RULE = """\
import sys
import numpy as np
a = np.random.default_rng(0).standard_normal((400, 400)) / 20
b = a
for _ in range(30):
    b = b @ a
print(sys.argv[1:])
"""


def estimated(mixpert: Mixpert, *arguments: str) -> dict[str, Any]:
    done = mixpert("estimate", "--json", *arguments)
    assert done.code == 0, done.err
    return dict(json.loads(done.out))


def test_a_program_in_which_products_rule(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text(RULE)
    found = estimated(mixpert, "s.py", "--size", "9")
    assert 0.5 < found["share"] <= 1
    assert found["ceiling"] is None or found["ceiling"] == pytest.approx(1 / (1 - found["share"]))
    (product,) = found["products"]
    assert (product["line"], product["expression"], product["calls"]) == (6, "b @ a", 30)
    assert product["errors"]["int8x10"] < product["errors"]["int8x6"] < 1e-6
    assert product["errors"]["int8x3"] > 1e-5
    assert 0 < product["errors"]["float32"] < 1e-6
    assert set(product["speeds"]["here"]) == {"float32"}
    places = {place["device"]: place for place in found["places"]}
    assert next(iter(places)) is None
    assert {"H200", "A100", "RTX 3090"} < set(places)
    assert set(places["H200"]["plan"].values()) <= {"native", "int8x10", "faithful", "int8x6"}
    assert os.listdir(tmp_path) == ["s.py"]  # no plan, nothing that a tuning would take up


def test_products_of_integers_gain_here_alone(tmp_path: Path, mixpert: Mixpert) -> None:
    counts = "i = np.arange(640000).reshape(800, 800) % 7\nj = i @ i\n"
    (tmp_path / "s.py").write_text(RULE + counts)
    found = estimated(mixpert, "s.py")
    integers = [one for one in found["products"] if one["expression"] == "i @ i"]
    (gains,) = (one["speeds"] for one in integers)
    assert {place: {*speeds} for place, speeds in gains.items() if speeds} == {"here": {"exact"}}
    assert gains["here"]["exact"] > 1
    assert integers[0]["errors"] == {"exact": 0.0}
    fixed = sum(one["seconds"] for one in integers)
    most = found["seconds"] / fixed  # all else takes no time
    assert all(place["gain"] <= most for place in found["places"][1:])
    assert all(
        set(place["plan"]) < {one["id"] for one in found["products"]}
        for place in found["places"][1:]
    )


def test_a_module(tmp_path: Path, mixpert: Mixpert) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "net.py").write_text("def power(a):\n    return a @ a\n")
    (package / "__main__.py").write_text(
        "import sys\nimport numpy as np\nfrom .net import power\n"
        "assert sys.argv[1:] == ['--json']\nx = power(np.ones((300, 300))) @ np.ones(300)\n"
    )
    found = estimated(mixpert, "-m", "pkg", "--json")
    places = {(os.path.basename(x["path"]), x["line"]) for x in found["products"]}
    assert places == {("net.py", 2), ("__main__.py", 5)}
    for name in ("nosuch", "pkg.nosuch", "net"):
        said = mixpert("estimate", "-m", name)
        assert said.code == 2
        assert name in said.one_clear_line()


@pytest.mark.parametrize(
    ("listed", "budget"),
    [("1e-3", 1e-3), ('["x=1e-2", 1e-4]', 1e-4), ('["x=1e-2", "y=1e-3"]', 1e-3), ("[]", 1e-5)],
    ids=["one", "for the others", "the smallest", "none"],
)
def test_the_budget_of_the_project(
    listed: str, budget: float, tmp_path: Path, mixpert: Mixpert
) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.mixpert]\nerror = {listed}\n")
    (tmp_path / "s.py").write_text("import numpy as np\nnp.eye(99) @ np.eye(99)\n")
    assert estimated(mixpert, "s.py")["error"] == budget
    assert estimated(mixpert, "--error", "0.5", "s.py")["error"] == 0.5


CHILDREN = """\
import numpy as np
from multiprocessing import get_context
def work(n):
    for _ in range(30):
        a = np.ones((n, n)) @ np.ones((n, n))
if __name__ == "__main__":
    work(9)
    with get_context("fork").Pool(2) as pool:
        pool.map(work, [500, 500])
        pool.close()
        pool.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_products_of_other_processes_are_not_known(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text(CHILDREN)
    assert estimated(mixpert, "s.py")["children"] > 0
    done = mixpert("estimate", "s.py")
    assert "their products are not counted" in " ".join(done.out.split())


def notebook(*sources: str) -> str:
    cells = [
        {"cell_type": "code", "source": text, "metadata": {}, "outputs": []} for text in sources
    ]
    return json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": cells})


def test_a_notebook(tmp_path: Path, mixpert: Mixpert) -> None:
    sources = ["%matplotlib inline\nimport numpy as np\na = np.ones((300, 300))", "\nb = a @ a"]
    (tmp_path / "n.ipynb").write_text(notebook(*sources))
    found = estimated(mixpert, "n.ipynb")
    (product,) = found["products"]
    assert (product["path"], product["line"], product["expression"]) == ("cell_2", 2, "a @ a")
    (tmp_path / "n.ipynb").write_text("{")
    said = mixpert("estimate", "n.ipynb")
    assert said.code == 2
    assert "n.ipynb: not a notebook" in said.one_clear_line()


@pytest.mark.parametrize("cell", ["%%bash\nb = a @ a", "b = a @"], ids=["magic", "no Python"])
def test_a_notebook_without_products_says_what_was_left_out(
    cell: str, tmp_path: Path, mixpert: Mixpert
) -> None:
    (tmp_path / "n.ipynb").write_text(notebook("import numpy as np\na = np.eye(9)", cell))
    said = mixpert("estimate", "n.ipynb")
    assert said.code == 1
    assert said.err == (
        "n.ipynb: left out, as no Python or another magic's: cell_2\n"
        "n.ipynb: makes no matrix product in its own process that could be rewritten\n"
    )


@pytest.mark.parametrize(
    "text", ["print(1)\n", "def f(a): return a @ a\n"], ids=["none", "none is called"]
)
def test_a_program_without_products(text: str, tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text(text)
    said = mixpert("estimate", "s.py")
    assert said.code == 1
    assert said.err == "s.py: makes no matrix product in its own process that could be rewritten\n"
    assert said.out == ""
    assert mixpert("estimate", "--json", "s.py").out == "null\n"


BAD = [
    ("no parse", "x = (1 @\n", "s.py: line 1"),
    ("exits", "import sys, numpy as np\nnp.eye(2) @ np.eye(2)\nsys.exit(3)\n", "exit code 3"),
    ("hangs", "import time\na @ b if 0 else time.sleep(60)\n", "still running after 2 s"),
]


@pytest.mark.parametrize(("text", "word"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_program_that_fails(text: str, word: str, tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text(text)
    said = mixpert("estimate", "--time-limit", "2", "s.py")
    assert said.code == 2
    assert word in said.err
    assert said.err.startswith("mixpert: ")
    assert "mixpert_py" not in said.err
    assert said.out == ""


def command(
    place: Place, *arguments: str, module: str | None = None, packages: tuple[str, ...] = ()
) -> str:
    options = Options(None, None, False, False, False, False, module, packages, arguments)
    return options.next_command(place, "1e-4")


def test_the_next_command() -> None:
    here, gpu = Place(None, 2.0, 1.0, {}), Place("RTX 3090", 2.0, 1.0, {})
    every = Place(None, 2.0, 1.0, {}, "float32")
    assert command(here, "s.py") == "mixpert tune --error 1e-4 s.py"
    assert command(here, "s.py", "8") == "mixpert tune --error 1e-4 s.py 8"
    assert command(here, "a b.py", "-n", "8") == "mixpert tune --error 1e-4 'a b.py' -- -n 8"
    assert command(gpu, "s.py") == "mixpert tune --error 1e-4 --device 'rtx 3090' s.py"
    assert command(every, "s.py", "-n") == "mixpert run --scheme float32 s.py -- -n"
    assert command(every, "-n", module="pkg") == "mixpert run --scheme float32 -m pkg -n"
    exact = Place(None, 2.0, 1.0, {"a": "exact", "b": "native"})
    assert command(exact, "s.py") == "mixpert run s.py"
    some = command(here, "s.py", packages=("sklearn", "scipy.l*"))
    assert some == "mixpert tune --error 1e-4 --package sklearn --package 'scipy.l*' s.py"
    some = command(every, "s.py", packages=("sklearn",))
    assert some == "mixpert run --scheme float32 --package sklearn s.py"


MANY = """\
import numpy as np

a, b = np.eye(6), np.ones(6)
for _ in range(6000):
    b = a @ b
    c = a @ a
print(b.sum())
"""
WHOLE = """\
import numpy as np

a = np.arange(1600).reshape(40, 40)
print((a @ a).sum())
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MANY, "12,000 products of about "),
        (WHOLE, "1 product of about "),
    ],
    ids=["too small", "integers"],
)
def test_products_that_can_take_no_level_are_one_line(
    tmp_path: Path, mixpert: Mixpert, text: str, said: str
) -> None:
    (tmp_path / "s.py").write_text(text)
    done = mixpert("estimate", "s.py")
    assert done.code == 0, done.err
    (line,) = done.out.splitlines()
    assert line.startswith(f"s.py: {said}")
    tuned = mixpert("tune", "--error", "1e-6", "-v", "s.py")
    assert tuned.code == 1
    assert tuned.out == ""
    runs = [line for line in tuned.err.splitlines() if line.startswith("run ")]
    assert runs == ["run 1: native run"]
    assert said in tuned.err
    assert "idle" not in tuned.err
    assert not (tmp_path / "s.mixpert.toml").exists()


def test_products_of_threads_take_no_longer_than_their_program(
    tmp_path: Path, mixpert: Mixpert
) -> None:
    (tmp_path / "s.py").write_text(
        "import threading\nimport numpy as np\na = np.ones((600, 600))\n"
        "def work():\n    for _ in range(10):\n        a @ a\n"
        "threads = [threading.Thread(target=work) for _ in range(8)]\n"
        "for thread in threads:\n    thread.start()\n"
        "for thread in threads:\n    thread.join()\n"
    )
    found = estimated(mixpert, "s.py")
    assert 0 < found["products_seconds"] <= found["seconds"] * (1 + 1e-9)


LOOPS = """\
import numpy as np

x = np.random.default_rng(0).standard_normal((300, 300))
y = np.einsum("ij,jk->ik", x, x)
z = np.einsum("ij,jk,kl->il", *3 * [x[:30, :30]])
print(abs(y - x @ x).max() < 1e-10)
"""


def test_products_that_numpy_makes_in_loops_gain_by_blas(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text(LOOPS)
    done = mixpert("run", "--scheme", "blas", "--strict", "s.py")
    assert (done.code, done.out) == (0, "True\n"), done.err
    told = mixpert("estimate", "s.py")
    assert told.code == 0, told.err
    assert "NumPy makes these products in a loop" in told.out
