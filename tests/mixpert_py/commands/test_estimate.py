"""`mixpert estimate`: whether a program can gain, in a sentence."""

import io
import json
import os
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest

from mixpert_py.commands import tables
from mixpert_py.commands.estimate import EstimateOptions
from mixpert_py.tuner.prediction import PredictedGain
from mixpert_py.tuning.estimate import Estimate, EstimatedProduct
from tests.mixpert_py.command import Shell

RULE = """\
import sys
import numpy as np
a = np.random.default_rng(0).standard_normal((400, 400)) / 20
b = a
for _ in range(30):
    b = b @ a
print(sys.argv[1:])
"""


def test_a_program_in_which_products_rule(sh: Shell) -> None:
    sh.write({"s.py": RULE})
    found = sh.json("estimate --json s.py --size 9")
    assert 0.1 < found["share"] <= 1  # of a run whose start counts, on any machine
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
    assert os.listdir(sh.folder) == ["s.py"]  # no plan, nothing that a tuning would take up


def test_products_of_integers_gain_here_alone(sh: Shell) -> None:
    sh.write({"s.py": RULE + "i = np.arange(640000).reshape(800, 800) % 7\nj = i @ i\n"})
    found = sh.json("estimate --json s.py")
    (integers,) = [one for one in found["products"] if one["expression"] == "i @ i"]
    gains = {place: {*speeds} for place, speeds in integers["speeds"].items() if speeds}
    assert gains == {"here": {"exact"}}
    assert integers["speeds"]["here"]["exact"] > 1
    assert integers["errors"] == {"exact": 0.0}
    most = found["seconds"] / integers["seconds"]  # all else takes no time
    for place in found["places"][1:]:
        assert place["gain"] <= most
        assert set(place["plan"]) < {one["id"] for one in found["products"]}


def test_a_module(sh: Shell) -> None:
    main = (
        "import sys\nimport numpy as np\nfrom .net import power\nassert sys.argv[1:] == ['--json']"
    )
    sh.write(
        {
            "pkg/__init__.py": "",
            "pkg/net.py": "def power(a):\n    return a @ a\n",
            "pkg/__main__.py": f"{main}\nx = power(np.ones((300, 300))) @ np.ones(300)\n",
        }
    )
    found = sh.json("estimate --json -m pkg --json")
    places = {(os.path.basename(x["path"]), x["line"]) for x in found["products"]}
    assert places == {("net.py", 2), ("__main__.py", 5)}
    for name in ("nosuch", "pkg.nosuch", "net"):
        assert name in sh(f"estimate -m {name}", 2).one_clear_line()


def test_the_budget_of_the_project(sh: Shell) -> None:
    sh.write({"s.py": "import numpy as np\nnp.eye(99) @ np.eye(99)\n"})
    budgets = {"1e-3": 1e-3, '["x=1e-2", 1e-4]': 1e-4, '["x=1e-2", "y=1e-3"]': 1e-3, "[]": 1e-5}
    for listed, budget in budgets.items():
        sh.write({"pyproject.toml": f"[tool.mixpert]\nerror = {listed}\n"})
        assert sh.json("estimate --json s.py")["error"] == budget
    assert sh.json("estimate --json --error 0.5 s.py")["error"] == 0.5


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
def test_products_of_other_processes_and_of_threads(sh: Shell) -> None:
    sh.write({"s.py": CHILDREN})
    assert sh.json("estimate --json s.py")["children"] > 0
    assert "their products are not counted" in " ".join(sh("estimate s.py").out.split())
    sh.write(
        {
            "threads.py": "import threading\nimport numpy as np\na = np.ones((600, 600))\n"
            "def work():\n    for _ in range(10):\n        a @ a\n"
            "threads = [threading.Thread(target=work) for _ in range(8)]\n"
            "for thread in threads:\n    thread.start()\n"
            "for thread in threads:\n    thread.join()\n"
        }
    )
    found = sh.json("estimate --json threads.py")  # no longer than their program
    assert 0 < found["products_seconds"] <= found["seconds"] * (1 + 1e-9)


def notebook(*sources: str) -> str:
    cells = [
        {"cell_type": "code", "source": text, "metadata": {}, "outputs": []} for text in sources
    ]
    return json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": cells})


def test_a_notebook(sh: Shell) -> None:
    sources = ["%matplotlib inline\nimport numpy as np\na = np.ones((300, 300))", "\nb = a @ a"]
    sh.write({"n.ipynb": notebook(*sources)})
    (product,) = sh.json("estimate --json n.ipynb")["products"]
    assert (product["path"], product["line"], product["expression"]) == ("cell_2", 2, "a @ a")
    none = "n.ipynb: makes no matrix product in its own process that could be rewritten\n"
    for cell in ("%%bash\nb = a @ a", "b = a @"):
        sh.write({"n.ipynb": notebook("import numpy as np\na = np.eye(9)", cell)})
        left = "n.ipynb: left out, as no Python or another magic's: cell_2\n"
        sh("estimate n.ipynb", 1, err=left + none)


def command(
    place: PredictedGain, *arguments: str, module: str | None = None, packages: tuple[str, ...] = ()
) -> str:
    script, *others = (None, *arguments) if module else arguments
    options = EstimateOptions(
        None, None, False, False, False, module, packages, script, tuple(others)
    )
    return options.next_command(place, "1e-4")


def test_the_next_command() -> None:
    here, gpu = PredictedGain(None, 2.0, 1.0, {}), PredictedGain("RTX 3090", 2.0, 1.0, {})
    assert command(here, "s.py") == "mixpert tune --error 1e-4 s.py"
    assert command(here, "s.py", "8") == "mixpert tune --error 1e-4 s.py 8"
    assert command(here, "a b.py", "-n", "8") == "mixpert tune --error 1e-4 'a b.py' -- -n 8"
    assert command(gpu, "s.py") == "mixpert tune --error 1e-4 --device 'rtx 3090' s.py"
    assert command(here, "-n", module="pkg") == "mixpert tune --error 1e-4 -m pkg -n"
    exact = PredictedGain(None, 2.0, 1.0, {"a": "exact", "b": "native"})
    assert command(exact, "s.py") == "mixpert run s.py"
    some = command(here, "s.py", packages=("sklearn", "scipy.l*"))
    assert some == "mixpert tune --error 1e-4 --package sklearn --package 'scipy.l*' s.py"


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
    [(MANY, "12,000 products: "), (WHOLE, "1 product: ")],
    ids=["too small", "integers"],
)
def test_products_that_can_take_no_level_are_one_line(sh: Shell, text: str, said: str) -> None:
    sh.write({"s.py": text})
    (line,) = sh("estimate s.py").out.splitlines()
    assert line.startswith(f"s.py: {said}")
    tuned = sh("tune --error 1e-6 -v s.py", 1, out="", err=said)
    runs = [line for line in tuned.err.splitlines() if line.startswith("run ")]
    assert runs == ["run 1: native run"]
    assert "idle" not in tuned.err
    assert not (sh.folder / "s.mixpert.toml").exists()


LOOPS = """\
import numpy as np

x = np.random.default_rng(0).standard_normal((300, 300))
y = np.einsum("ij,jk->ik", x, x)
z = np.einsum("ij,jk,kl->il", *3 * [x[:30, :30]])
print(abs(y - x @ x).max() < 1e-10)
"""


def test_products_that_numpy_makes_in_loops_gain_by_blas(sh: Shell) -> None:
    sh.write({"s.py": LOOPS})
    sh("run --scheme blas s.py", out="True\n")
    sh("estimate s.py", out="NumPy makes these products in a loop")


PRODUCT = EstimatedProduct(
    "m:f/matmul~1#0",
    "/home/m.py",
    12,
    "covariance[rows, :] @ weights.T",
    3,
    1.5,
    {"float32": 2e-7, "int8x6": 3e-7},
    {"here": {"float32": 1.8}, "H200": {"int8x6": 1.1}, "A100": {"int8x6": 1.4}, "T4": {}},
)
FOUND = Estimate(
    2.0,
    0.75,
    (PRODUCT,),
    (
        PredictedGain(None, 1.5, 1.0, {"m": "float32"}, error=2e-7),
        PredictedGain("H200", 1.05, 0.1, {"m": "int8x6"}, error=3e-7),
        PredictedGain("A100", 1.2, 0.2, {"m": "int8x6"}, error=3e-7),
        PredictedGain("T4", 1.0, 9.0, {}),
    ),
    0.0,
)

PRINTED = Path(__file__).with_name("estimate_tables.txt")


def estimates() -> dict[str, Estimate]:
    """Title → an estimate to print."""

    def of(product: dict[str, object], **changes: object) -> Estimate:
        return replace(FOUND, products=(replace(PRODUCT, **product),), **changes)

    slower, unknown = {"speeds": {"here": {"float32": 0.9}}}, {"speeds": {"here": {}}}
    small = {**unknown, "unsuited": "6 × 6 × 6 is too small"}
    return {
        "with a level": FOUND,
        "a product of a library": of({"path": "shapes/deep.py"}),
        "a short run of which a part is unknown": of({}, unmeasured=0.25, seconds=0.05),
        "with child processes and no gain": of(
            {}, children=0.5, places=(PredictedGain(None, 1.0, 1.0, {}),)
        ),
        "not faster": of(slower),
        "not measured": of(unknown),
        "too small": of(small),
        "a time without an error": of({"errors": {}}),
    }


def printed() -> str:
    """All estimates, each under its title, on terminals of 60 and of 80 columns."""
    parts = []
    for title, found in estimates().items():
        for width in (60, 80):
            with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as file:
                patch.delenv("FORCE_COLOR", raising=False)
                patch.setenv("COLUMNS", str(width))
                tables.print_estimate(found, "1e-5", "s.py")
            lines = [line.rstrip() for line in file.getvalue().splitlines()]
            assert max(map(len, lines)) <= width
            parts.append("\n".join([f"==== {title}, {width} columns", *lines, ""]))
    return "".join(parts)


def test_the_printed_estimates() -> None:
    """`python -m tests.mixpert_py.commands.test_estimate` writes the file anew."""
    assert printed().split("==== ") == PRINTED.read_text("utf-8").split("==== ")


if __name__ == "__main__":
    PRINTED.write_text(printed(), "utf-8")
