"""`mixpert run --profile` and `--strict`: what ran, of all threads and children."""

import json
import os
from pathlib import Path

import pytest

from mixpert_py.passes.pipeline import analyze
from mixpert_py.runtime.gpu import device
from tests.mixpert_py.command import Mixpert, Said
from tests.mixpert_py.commands.run_program import PRODUCT

EMULATED = ("--backend", "reference", "--scheme", "int8x6")


def test_the_profile_names_calls_schemes_and_reasons(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text(f"{PRODUCT}small = b[:3, :3].dot(b[:3, :3])\n")
    said = mixpert("run", "--scheme", "float32", "--profile", "--json", "p.json", "s.py")
    assert said.code == 0
    assert said.out.count("\n") == 1
    for word in ("a @ a", "float32", "800 × 800 × 800", "too small (1)"):
        assert word in said.err
    first, second = json.loads((tmp_path / "p.json").read_text())
    assert first["schemes"] == {"float32": 1}
    assert first["line"] == 4
    assert second["reasons"] == {"too small": 1}


def test_strict_turns_a_fallback_into_an_exit_code(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text(PRODUCT.replace("arange(640000.0)", "arange(640000)"))
    said = mixpert("run", "--strict", "--scheme", "float32", "s.py")
    assert said.code == 0, said
    (tmp_path / "s.py").write_text(PRODUCT.replace(" / 1e6", "[:9, :9].astype(np.longdouble)"))
    said = mixpert("run", "--strict", "--scheme", "float32", "s.py")
    assert said.code == 1
    assert said.one_clear_line().endswith(
        "s.py:4: a @ a: ran native: dtype without a scheme (1 call)"
    )
    assert mixpert("run", "--strict", "s.py").code == 0


DECIDED = """\
from functools import partial
import numpy as np
einsum = partial(np.einsum, optimize=True)
a = np.ones((800, 800))
einsum("ij,jk->ik", a, a)
class Mine:
    def dot(self, x, y): return x
mine = Mine()
for _ in range(3): mine.dot(a, a)
"""


def test_a_call_that_is_decided_when_it_runs_is_in_the_profile(
    tmp_path: Path, mixpert: Mixpert
) -> None:
    (tmp_path / "s.py").write_text(DECIDED)
    said = mixpert(
        "run", "--scheme", "float32", "--profile", "--strict", "--json", "p.json", "s.py"
    )
    assert said.code == 0, said
    assert "no known product (3)" in said.err
    product, other = json.loads((tmp_path / "p.json").read_text())
    assert (product["line"], product["schemes"]) == (5, {"float32": 1})
    assert (other["line"], other["reasons"]) == (9, {"no known product": 3})


TWICE = """\
import sys
import numpy as np
a = np.eye(800)
def f(x, y):
    return x @ y
f(a, a)
"""
# An edit → the words on stderr behind "mixpert: "; none: the plan holds. See docs/commands.md.
EDITS = {
    "a local's name": ("x", "z", []),
    "another product": ("f(a, a)", "f(a, a); a @ a.T", ["s.py:6: a @ a.T: not in the plan"]),
    "the expression": (
        "x @ y",
        "x @ (y * 1.0)",
        ["s.py:5: x @ (y * 1.0): not in the plan", "(x @ y): in the plan, and not in the program"],
    ),
    "the expression, uncalled": (
        "    return x @ y\nf",
        "    return x.T @ y\nf, ",
        ["(x @ y): in the plan, and not in the program"],
    ),
    "left alone": ("x @ y", "x @ y  # mixpert: off", ["(x @ y): in the plan, and not in the"]),
}


@pytest.mark.parametrize(("old", "new", "words"), EDITS.values(), ids=EDITS)
def test_strict_turns_a_stale_plan_into_an_exit_code(
    tmp_path: Path, mixpert: Mixpert, old: str, new: str, words: list[str]
) -> None:
    site = analyze(TWICE.encode(), "s")[0]
    entry = f'[[site]]\nid = "{site.id}"\nscheme = "float32"\nexpression = "x @ y"\n'
    (tmp_path / "s.mixpert.toml").write_text(entry)
    (tmp_path / "s.py").write_text(TWICE.replace(old, new))
    said = mixpert("run", "--strict", "s.py")
    lines = [line for line in said.err.splitlines() if line.startswith("mixpert: ")]
    assert len(lines) == len(words), said.err
    assert all(word in line for word, line in zip(words, lines, strict=True)), said.err
    assert said.code == bool(words)
    # Without a plan for its sites, and without --strict, nothing is expected of them.
    assert mixpert("run", "--strict", "--scheme", "native", "s.py").code == 0
    assert mixpert("run", "s.py").code == 0


def test_strict_wants_a_plan_of_this_program(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "other.toml").write_text(
        '[[site]]\nid = "t:work/matmul~aa#0"\nscheme = "float32"\n'
    )
    (tmp_path / "s.py").write_text(TWICE)
    said = mixpert("run", "--strict", "--plan", "other.toml", "s.py")
    assert said.one_clear_line() == "mixpert: the plan is for another program: t"
    assert said.code == 1


def test_a_rewritten_file_is_not_stale(tmp_path: Path, mixpert: Mixpert) -> None:
    site = analyze(TWICE.encode(), "s")[0]
    (tmp_path / "s.mixpert.toml").write_text(f'[[site]]\nid = "{site.id}"\nscheme = "float32"\n')
    (tmp_path / "s.py").write_text(TWICE.replace("\nf(a", "\nif len(sys.argv) > 1: f(a"))
    assert mixpert("rewrite", "s.py").code == 0
    for words in ((), ("call",)):
        assert mixpert("run", "--strict", "s_mixpert.py", *words) == Said(0, "", "")


SILENT_ENDS = [
    ("thread", "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.3), f(a)))"
     ".start()\n", 2),
    ("fork", "import os, sys\nif os.fork() == 0:\n    f(a); sys.exit()\nos.wait()\n", 1),
    ("hidden stderr", "import io, sys\nsys.stderr = io.StringIO()\n", 1),
    ("other folder", "import os, tempfile\nos.chdir(tempfile.mkdtemp())\n", 1),
]  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize(
    ("text", "calls"), [row[1:] for row in SILENT_ENDS], ids=[row[0] for row in SILENT_ENDS]
)
def test_the_profile_is_the_programs_and_printed_once(
    tmp_path: Path, mixpert: Mixpert, text: str, calls: int
) -> None:
    (tmp_path / "s.py").write_text(
        f"import numpy as np\na = np.ones((8, 8))\ndef f(x):\n    return x @ x\nf(a)\n{text}"
    )
    said = mixpert("run", "--profile", "--json", "p.json", "s.py")
    assert said.code == 0
    assert said.err.count("x @ x") == 1
    (record,) = json.loads((tmp_path / "p.json").read_text())
    assert record["calls"] == calls


def test_the_profile_names_the_share_of_outliers(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text(
        "import numpy as np, mixpert_py\n"
        "a = np.random.default_rng(0).standard_normal((8, 300))\n"
        "a[3] = 110 / 256 / 127  # second digits are large, one entry is the norm\n"
        "a[3, 0] = 1\n"
        "with mixpert_py.precision('int8x6', backend='reference'):\n    a @ a.T\n"
    )
    said = mixpert("run", "--profile", "--json", "p.json", "s.py")
    assert "12 %" in said.err
    (record,) = json.loads((tmp_path / "p.json").read_text())
    assert record["outliers"] == 1 / 8


def test_threads_that_threads_begin_are_waited_for(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "p.py").write_text(
        "import time\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "from threading import Thread\nimport numpy as np\n\n"
        "pool = ThreadPoolExecutor(1)\npool.submit(int).result()\n\n"
        "def work(depth):\n    time.sleep(0.1)\n    np.eye(2) @ np.eye(2)\n    if depth > 0:\n"
        "        Thread(target=work, args=(depth - 1,)).start()\n"
        "    elif depth == 0:\n        pool.submit(work, -1)\n\n"
        "Thread(target=work, args=(2,)).start()\n"
    )
    assert mixpert("run", "--json", "p.json", "p.py").code == 0
    (record,) = json.loads((tmp_path / "p.json").read_text())
    assert record["calls"] == 4


@pytest.mark.parametrize(
    "pool",
    [
        "concurrent.futures import ProcessPoolExecutor as Pool",
        "joblib.externals.loky import get_reusable_executor as Pool",
    ],
)
def test_a_pool_of_processes_that_is_left_open_is_no_reason_to_wait(
    tmp_path: Path, mixpert: Mixpert, pool: str
) -> None:
    (tmp_path / "p.py").write_text(
        f"import time\nfrom {pool}\n\n"
        "def work():\n    time.sleep(0.2)\n    print('late', flush=True)\n\n"
        "if __name__ == '__main__':\n    Pool(max_workers=1).submit(work)\n"
    )
    said = mixpert("run", "p.py")
    assert (said.code, said.out) == (0, "late\n")


@pytest.mark.parametrize("options", [["--profile", "--strict"]])
def test_what_makes_the_profile_is_not_imported_from_the_programs_folder(
    tmp_path: Path, mixpert: Mixpert, options: list[str]
) -> None:
    (tmp_path / "s.py").write_text(PRODUCT)
    mixpert("run", "s.py")  # what is kept of it needs no rewriter in the next run
    for name in ("ast", "colorsys", "libcst", "rich"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('of the program')\n")
    said = mixpert("run", *options, "s.py")
    assert said.code == 0, said
    assert "of the program" not in said.err


def test_two_products_in_a_line_get_one_hint(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text(
        "import numpy as np\n"
        "d = 10.0 ** np.linspace(-3, 3, 64)\n"
        "a, b = np.ones((64, 64)) * d, np.ones((64, 64)) / d[:, None]\n"
        "c = a @ b, a[:32] @ b\n"
    )
    said = mixpert("run", "--profile", *EMULATED, "s.py")
    assert said.err.count("line 4: int8x6 loses about") == 1, said.err
    if not device.may_be_here():  # what only GPUs run is no advice
        assert "int8" not in mixpert("run", "--profile", "s.py").err


NEAR_IDENTITY = """\
import numpy as np
noise = np.random.default_rng(0).standard_normal((2, 96, 96))
a, b = np.eye(96) + {} * noise
c = a @ b
"""


def test_small_entries_that_no_error_shows_are_told(tmp_path: Path, mixpert: Mixpert) -> None:
    words = "line 4: most entries of a row are some 2^3"
    (tmp_path / "s.py").write_text(NEAR_IDENTITY.format("1e-9"))
    profile = ("run", "--profile", *EMULATED, "s.py")
    assert mixpert(*profile).err.count(words) == 1
    tune = ("tune", "--error", "1e-6", "--backend", "reference", "s.py")
    said = mixpert(*tune)
    assert said.code == 0, said
    told = " ".join(said.out.split())
    assert "line 4, a @ b (int8x" in told
    assert "no error in the Frobenius norm shows. To judge them: --criterion mred" in told
    (tmp_path / "s.py").write_text(NEAR_IDENTITY.format("1"))
    assert "most entries" not in mixpert(*profile).err
    assert "most entries" not in mixpert(*tune).out


def test_a_scheme_that_no_product_took_is_told(tmp_path: Path, mixpert: Mixpert) -> None:
    product = "import numpy as np\na = np.ones(({0}, {0}))\nb = a @ a\n"
    (tmp_path / "s.py").write_text(product.format(8))
    said = mixpert("run", "--scheme", "float32", "s.py")
    assert said.err.startswith("mixpert: --scheme float32: every product ran natively. ")
    assert len(said.err.splitlines()) == 1
    assert len(mixpert("run", "--scheme", "int8x6", "s.py").err.splitlines()) == 1
    assert mixpert("run", "-q", "--scheme", "float32", "s.py").err == ""
    (tmp_path / "s.py").write_text(product.format(300))
    assert mixpert("run", "--scheme", "float32", "s.py").err == ""
