"""`mixpert run`: the program behaves as under `python`, and its products as the plan says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mixpert_py.runtime.gpu import device
from tests.mixpert_py.command import IMPORTABLE, Mixpert, Said, Shell, called
from tests.mixpert_py.commands.run_program import PRODUCT, python

WORLD = """\
import gc, sys, numpy as np
class Point:
    pass
print(sys.argv, __name__, __file__, sys.path[0], __spec__, __package__, __doc__)
print(sys.modules["__main__"].__dict__ is globals(), Point.__module__)
print(np.eye(2) @ np.ones(2))
print(globals().get("__annotations__"), gc.isenabled(), gc.get_threshold())
import pickle
pickle.loads(pickle.dumps(Point()))
"""


def test_a_program_sees_the_world_that_python_shows_it(sh: Shell) -> None:
    """A script and a module."""
    folder = sh.write(
        {
            "world.py": f'"""Its words."""\n{WORLD}',
            "pkg/__init__.py": "",
            "pkg/__main__.py": "import sys, numpy as np\nfrom pkg.near import x\n"
            "print(sys.argv, __name__, __package__, __spec__.name, sys.path[0], x @ x)\n",
            "pkg/near.py": "import numpy as np\nx = np.ones(3)\n",
        }
    )
    theirs = python(folder, "world.py", "--profile", "-x")
    assert sh("run world.py -- --profile -x") == theirs
    for name in ("pkg", "pkg.__main__"):
        assert sh(f"run -m {name} --strict 1") == python(folder, "-m", name, "--strict", "1")


TOLD = """\
import gc, logging, sys, traceback, warnings
import numpy as np

class Op:
    __array_ufunc__ = None
    def __matmul__(self, other):
        warnings.warn("an operator", DeprecationWarning, stacklevel=2)
        logging.warning("a line", stacklevel=2)
    def dot(self, other):
        warnings.warn("a method", DeprecationWarning, stacklevel=2)
        {skip}

class Array(np.ndarray):
    def __array_function__(self, function, types, operands, named):
        warnings.warn("a function", DeprecationWarning, stacklevel=2)

class Faulty:
    def __del__(self):
        np.eye(3) @ np.eye(2)

logging.basicConfig(format="%(lineno)d %(funcName)s %(message)s")
op, array = Op(), np.eye(2).view(Array)
for _ in range(2):
    op @ 1; op.dot(2)
    np.dot(array, array); np.einsum("ij,jk", array, array); np.inner(array, array)
for product in (lambda: np.eye(3) @ np.eye(2), lambda: np.dot(np.eye(3), np.eye(2)),
                lambda: np.eye(3).dot(np.eye(2)), lambda: np.einsum("ij,jk", np.eye(3), np.eye(2)),
                lambda: np.linalg.multi_dot([np.eye(3), np.eye(2)]), lambda: op @ op.lost,
                lambda: np.full((2, 2), 1e200) @ np.full((2, 2), 1e200)):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            product()
    except Exception as error:
        print(traceback.extract_tb(error.__traceback__)[-1].lineno, error.__context__)
        logging.exception("it failed")
Faulty(); gc.collect()
"""


def test_no_frame_of_ours_is_told_to_a_program(sh: Shell) -> None:
    later = 'warnings.warn("s", skip_file_prefixes=("/nowhere",))'
    sh.write({"s.py": TOLD.format(skip=later if sys.version_info >= (3, 12) else "")})
    shown = "default::DeprecationWarning:__main__"
    theirs = python(sh.folder, "-W", shown, "s.py")
    ours = sh("run s.py", out=theirs.out, PYTHONWARNINGS=shown)
    assert without_numpys(ours.err) == without_numpys(theirs.err)
    assert ours.err.count("DeprecationWarning: ") == 3


def without_numpys(text: str) -> list[str]:
    """Lines of an output without NumPy's own files, not all of which we call, and addresses."""
    lines = [line for line in text.splitlines() if "site-packages" not in line]
    return [line.partition(" at 0x")[0] for line in lines]


ENDS = [
    "import sys; sys.exit(3)",
    "import sys; sys.exit('bad luck')",
    "import os; os._exit(4)",
    "import atexit; atexit.register(print, 'bye')",
    "import sys; sys.excepthook = lambda *a: print('hooked'); 1 / 0",
]
OUTPUTS = [
    "sys.stdout.close()",
    "sys.stdout = type('Sink', (), {'write': lambda self, text: None})()",
    "sys.stdout = open(os.devnull, 'w'); sys.stdout.close()",
]


@pytest.mark.parametrize("text", ENDS + OUTPUTS)
def test_the_exit_code_and_last_words_are_the_scripts(sh: Shell, text: str) -> None:
    if text in OUTPUTS:
        text = f"import os, sys; print('begun', flush=True); {text}; sys.exit(3)\n"
    sh.write({"s.py": text})
    ours, theirs = sh.mixpert("run", "s.py"), python(sh.folder, "s.py")
    assert (ours.code, ours.out) == (theirs.code, theirs.out)
    assert ours.err == theirs.err or ("stdout" in text and "mixpert" not in ours.err)


UNCLOSED = """\
import json
json.JSONEncoder.default = lambda self, value: 0
file = open(1, "w", closefd=False)
file.write("bye")
"""


def test_a_file_that_the_program_leaves_open_is_written(sh: Shell) -> None:
    """Python's last collection writes it, also where a library refers to the program."""
    sh.write({"s.py": UNCLOSED})
    assert called("mixpert_py", "run", "s.py", folder=sh.folder) == python(sh.folder, "s.py")


IDLE = """\
import os, time
import numpy as np
a = np.ones((600, 600))
a @ a
spent = time.process_time()
time.sleep(0.2)
print(os.environ["OPENBLAS_THREAD_TIMEOUT"], time.process_time() - spent < 0.03)
"""


def test_idle_threads_of_numpy_do_not_spin(
    tmp_path: Path, new_mixpert: Mixpert, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are told before NumPy is imported; else they would spin for 0.1 s."""
    monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT", raising=False)
    (tmp_path / "s.py").write_text(IDLE)
    assert new_mixpert("run", "s.py") == Said(0, "20 True\n", "")
    assert new_mixpert("run", "s.py", OPENBLAS_THREAD_TIMEOUT="4") == Said(0, "4 True\n", "")


def test_scheme_and_plan_change_what_runs(sh: Shell) -> None:
    sh.write({"s.py": PRODUCT})
    native, float32 = sh("run s.py", err="").out, sh("run --scheme float32 s.py", err="").out
    assert float32 != native
    site = sh.json("sites --json s.py")[0]["id"]
    sh.write({"p.toml": f'[[site]]\nid = "{site}"\nscheme = "float32"\n'})
    sh("run --plan p.toml s.py", out=float32)
    sh("run s.py", out=float32, MIXPERT_PLAN="p.toml")
    sh.write({"s.mixpert.toml": sh.read("p.toml")})
    sh("run s.py", out=float32)
    assert sh("run --scheme int8x1 --backend reference s.py", err="").out != native
    assert sh("run --scheme int9 s.py", 2).one_clear_line()


@pytest.mark.skipif(device.may_be_here(), reason="there may be a GPU")
def test_a_warning_says_that_there_is_no_gpu(sh: Shell) -> None:
    """Once, wherever the scheme was named."""
    program = "import numpy as np\na = np.ones((9, 9))\nfor _ in range(3):\n    b = a @ a\n"
    call = 'mixpert_py.matmul(a, a, scheme="int8x1")'
    sh.write({"s.py": f"{program}c = a @ a\nprint(b[0, 0], c[0, 0])\n"})
    sites = sh.json("sites --json s.py")
    table = '[[site]]\nid = "{}"\nscheme = "int8x1"\n'
    sh.write({"p.toml": "".join(table.format(site["id"]) for site in sites)})
    text = sh.read("s.py")
    sh.write({"comment/s.py": text.replace("b = a @ a", "b = a @ a  # mixpert: scheme=int8x1")})
    sh.write({"call/s.py": text.replace("c = a @ a", f"import mixpert_py\nc = {call}")})
    for line, plan in {
        "run --scheme int8x1 s.py": "",
        "run --plan p.toml s.py": "",
        "run s.py": "p.toml",
        "run comment/s.py": "",
        "run call/s.py": "",
    }.items():
        said = sh(line, out="9.0 9.0\n", MIXPERT_PLAN=plan).err
        assert said.count("int8x1: products run natively. No GPU can be used here") == 1, line


def test_what_the_compiler_warns_of_is_said_in_every_run(sh: Shell) -> None:
    theirs = python(sh.write({"s.py": f"{PRODUCT}print(a is 5)\n"}), "s.py")
    assert "SyntaxWarning" in theirs.err
    for _ in range(2):
        assert sh("run s.py", PYTHONDONTWRITEBYTECODE="") == theirs
    ours = sh("run s.py", 1, PYTHONWARNINGS="error::SyntaxWarning")
    assert ours.one_clear_line().startswith('mixpert: s.py: line 6: "is" with a literal')


def from_a_removed_folder(tmp_path: Path, *command: str) -> Said:
    """What a command says whose working folder is gone."""
    (tmp_path / "gone").mkdir()
    done = subprocess.run(
        ["sh", "-c", 'cd gone && rmdir ../gone && exec "$@"', "sh", sys.executable, *command],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": IMPORTABLE},
        timeout=60,
    )
    return Said(done.returncode, done.stdout, done.stderr)


def test_a_program_runs_where_the_working_folder_was_removed(tmp_path: Path) -> None:
    script = tmp_path / "world.py"
    script.write_text(WORLD)
    for words in ([str(script), "-x"], ["-m", "json.tool", "--help"]):
        theirs = from_a_removed_folder(tmp_path, *words)
        assert from_a_removed_folder(tmp_path, "-m", "mixpert_py", "run", *words) == theirs
        assert theirs.code == 0
    for line, said in {
        "run world.py": "mixpert: world.py: no such file or directory",
        f"tune --error 1e-3 {script}": "mixpert: the current folder was removed",
        "sites .": "mixpert: the current folder was removed",
    }.items():
        ours = from_a_removed_folder(tmp_path, "-m", "mixpert_py", *line.split())
        assert ours.one_clear_line().startswith(said)
        assert ours.code == 2


def test_a_safe_path_holds_for_modules_too(sh: Shell) -> None:
    sh.write({"near.py": PRODUCT})
    sh("run -m near")
    told = "mixpert: -m near: no such module with Python source\n"
    sh("run -m near", 2, err=told, PYTHONSAFEPATH="1")


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
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
