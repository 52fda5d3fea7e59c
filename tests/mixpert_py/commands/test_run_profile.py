"""`mixpert run --profile`: what ran, of all threads and children."""

import json
import os

import pytest

from tests.mixpert_py.command import Shell
from tests.mixpert_py.commands.run_program import PRODUCT

EMULATED = "run --profile --backend reference --scheme int8x6"


def test_the_profile_names_calls_schemes_and_reasons(sh: Shell) -> None:
    sh.write({"s.py": f"{PRODUCT}small = b[:3, :3].dot(b[:3, :3])\n"})
    parts = "a @ a", "float32", "800 × 800 × 800", "too small (1)"
    said = sh("run --scheme float32 --profile --json p.json s.py", err=parts)
    assert said.out.count("\n") == 1
    first, second = json.loads(sh.read("p.json"))
    assert (first["schemes"], first["line"]) == ({"float32": 1}, 4)
    assert second["reasons"] == {"too small": 1}


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


def test_a_call_that_is_decided_when_it_runs_is_in_the_profile(sh: Shell) -> None:
    sh.write({"s.py": DECIDED})
    told = "no known product (3)"
    sh("run --scheme float32 --profile --json p.json s.py", err=told)
    product, other = json.loads(sh.read("p.json"))
    assert (product["line"], product["schemes"]) == (5, {"float32": 1})
    assert (other["line"], other["reasons"]) == (9, {"no known product": 3})


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
def test_the_profile_is_the_programs_and_printed_once(sh: Shell, text: str, calls: int) -> None:
    head = "import numpy as np\na = np.ones((8, 8))\ndef f(x):\n    return x @ x\nf(a)\n"
    sh.write({"s.py": head + text})
    assert sh("run --profile --json p.json s.py").err.count("x @ x") == 1
    (record,) = json.loads(sh.read("p.json"))
    assert record["calls"] == calls


def test_the_profile_names_the_share_of_outliers(sh: Shell) -> None:
    sh.write(
        {
            "s.py": "import numpy as np, mixpert_py\n"
            "a = np.random.default_rng(0).standard_normal((8, 300))\n"
            "a[3] = 110 / 256 / 127  # second digits are large, one entry is the norm\n"
            "a[3, 0] = 1\n"
            "with mixpert_py.precision('int8x6', backend='reference'):\n    a @ a.T\n"
        }
    )
    sh("run --profile --json p.json s.py", err="12 %")
    assert json.loads(sh.read("p.json"))[0]["outliers"] == 1 / 8


def test_threads_that_threads_begin_are_waited_for(sh: Shell) -> None:
    sh.write(
        {
            "p.py": "import time\nfrom concurrent.futures import ThreadPoolExecutor\n"
            "from threading import Thread\nimport numpy as np\n\n"
            "pool = ThreadPoolExecutor(1)\npool.submit(int).result()\n\n"
            "def work(depth):\n    time.sleep(0.1)\n    np.eye(2) @ np.eye(2)\n    if depth > 0:\n"
            "        Thread(target=work, args=(depth - 1,)).start()\n\n"
            "Thread(target=work, args=(2,)).start()\n"
        }
    )
    assert sh.profile("p.py")[0]["calls"] == 3


@pytest.mark.parametrize(
    "pool",
    [
        "concurrent.futures import ProcessPoolExecutor as Pool",
        "joblib.externals.loky import get_reusable_executor as Pool",
    ],
)
def test_a_pool_of_processes_that_is_left_open_is_no_reason_to_wait(sh: Shell, pool: str) -> None:
    sh.write(
        {
            "p.py": f"import time\nfrom {pool}\n\n"
            "def work():\n    time.sleep(0.2)\n    print('late', flush=True)\n\n"
            "if __name__ == '__main__':\n    Pool(max_workers=1).submit(work)\n"
        }
    )
    sh("run p.py", out="late\n")


NEAR_IDENTITY = """\
import numpy as np
noise = np.random.default_rng(0).standard_normal((2, 96, 96))
a, b = np.eye(96) + {} * noise
c = a @ b
"""


def test_small_entries_that_no_error_shows_are_told(sh: Shell) -> None:
    tune = "tune --error 1e-6 --backend reference s.py"
    sh.write({"s.py": NEAR_IDENTITY.format("1e-9")})
    words = "line 4: most entries of a row are some 2^3"
    assert sh(f"{EMULATED} s.py").err.count(words) == 1
    told = " ".join(sh(tune).out.split())
    assert "line 4, a @ b (int8x" in told
    assert "no error in the Frobenius norm shows. To judge them: --criterion mred" in told
    sh.write({"s.py": NEAR_IDENTITY.format("1")})
    assert "most entries" not in sh(f"{EMULATED} s.py").err
    assert "most entries" not in sh(tune).out


def test_a_scheme_that_no_product_took_is_told(sh: Shell) -> None:
    product = "import numpy as np\na = np.ones(({0}, {0}))\nb = a @ a\n"
    sh.write({"s.py": product.format(8), "large.py": product.format(300)})
    told = "mixpert: --scheme float32: every product ran natively. "
    assert sh("run --scheme float32 s.py").one_clear_line().startswith(told)
    sh("run --scheme float32 large.py", err="")


def test_products_that_numpy_makes_in_loops_are_told(sh: Shell) -> None:
    lines = ["import numpy as np", "x = np.ones((200, 200))", 'np.einsum("ij,jk", x, x)', "x @ x"]
    sh.write({"s.py": "\n".join(lines)})
    meaning = "made in a loop: NumPy makes it in a loop; `blas` makes it by BLAS"
    said = sh("run --profile --json p.json s.py", err=("native, made in a loop", meaning))
    assert said.err.count("native, made") == 1
    assert {it["line"]: it["in_loops"] for it in json.loads(sh.read("p.json"))} == {3: 1, 4: 0}
