"""`mixpert run`: the program behaves as under `python`, and its products as the plan says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mixpert_py.command import IMPORTABLE, Mixpert, Said, called
from tests.mixpert_py.commands.run_program import PRODUCT, python

WORLD = """\
import sys, numpy as np
class Point:
    pass
print(sys.argv, __name__, __file__, sys.path[0], __spec__, __package__, __doc__)
print(sys.modules["__main__"].__dict__ is globals(), Point.__module__)
print(np.eye(2) @ np.ones(2))
print(globals().get("__annotations__"))
import pickle
pickle.loads(pickle.dumps(Point()))
"""


def test_a_script_sees_the_world_that_python_shows_it(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "world.py").write_text(f'"""Its words."""\n{WORLD}')
    ours, theirs = (
        mixpert("run", "world.py", "--", "--profile", "-x"),
        python(tmp_path, "world.py", "--profile", "-x"),
    )
    assert ours == theirs
    assert ours.code == 0


FOLDER = """\
import sys
import numpy as np
from own import square
print(sys.argv, __name__, __file__, sys.path[0], __package__, __spec__.name)
square(np.eye(3)) @ np.eye(3)
"""


def test_a_folder_sees_the_world_that_python_shows_it(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "app").mkdir()
    for file, text in (("__main__.py", FOLDER), ("own.py", "def square(x): return x @ x\n")):
        (tmp_path / "app" / file).write_text(text)
    said = mixpert("run", "--profile", "app", "x")
    assert (said.code, said.out) == (0, python(tmp_path, "app", "x").out)
    assert len([line for line in said.err.splitlines() if "native" in line]) == 2


def test_a_module_sees_the_world_that_python_shows_it(tmp_path: Path, mixpert: Mixpert) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(
        "import sys, numpy as np\nfrom pkg.near import x\n"
        "print(sys.argv, __name__, __package__, __spec__.name, sys.path[0], x @ x)\n"
    )
    (package / "near.py").write_text("import numpy as np\nx = np.ones(3)\n")
    for name in ("pkg", "pkg.__main__"):
        ours = mixpert("run", "-m", name, "--strict", "1")
        theirs = python(tmp_path, "-m", name, "--strict", "1")
        assert ours == theirs
        assert ours.code == 0


def test_a_program_may_come_from_standard_input(tmp_path: Path, mixpert: Mixpert) -> None:
    text = (
        "import sys, numpy as np\nx = np.ones((300, 300)) / 3\ny = x @ x\n"
        "print(sys.argv, __name__, sys.path[0], '__file__' in globals(), sys.stdin.read())\n"
        "print(float(np.float32(y[0, 0])) == y[0, 0])\n"
    )
    said = mixpert("run", "--scheme", "float32", "-", "-x", stdin=text)
    assert said.out == "['-', '-x'] __main__  False \nTrue\n", said
    said = mixpert("run", "-", stdin="1 +\n")
    assert (said.code, said.one_clear_line()) == (1, "mixpert: -: line 1: invalid syntax")


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


def test_no_frame_of_ours_is_told_to_a_program(tmp_path: Path, mixpert: Mixpert) -> None:
    later = 'warnings.warn("s", skip_file_prefixes=("/nowhere",))'
    skip = later if sys.version_info >= (3, 12) else ""
    (tmp_path / "s.py").write_text(TOLD.format(skip=skip))
    theirs = python(tmp_path, "-W", "default::DeprecationWarning:__main__", "s.py")
    ours = mixpert("run", "s.py", PYTHONWARNINGS="default::DeprecationWarning:__main__")
    assert ours.out == theirs.out
    assert without_numpys(ours.err) == without_numpys(theirs.err)
    assert ours.err.count("DeprecationWarning: ") == 3


def without_numpys(text: str) -> list[str]:
    """Lines of an output without NumPy's own files, not all of which we call, and addresses."""
    lines = [line for line in text.splitlines() if "site-packages" not in line]
    return [line.partition(" at 0x")[0] for line in lines]


DEEP = """\
import numpy as np
a = np.eye(3)

def product(levels):
    return a @ a if levels == 0 else product(levels - 1)

def deepest():
    for levels in range(1010, 0, -1):
        try:
            product(levels)
        except RecursionError:
            continue
        return levels

print(deepest())
"""


def test_the_first_product_takes_one_level_of_a_recursion(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(DEEP)
    levels = int(python(tmp_path, "s.py").out)
    assert levels - 2 <= int(called("mixpert_py", "run", "s.py", folder=tmp_path).out)


EXITS = [
    ("import sys; sys.exit(3)", 3),
    ("import sys; sys.exit('bad luck')", 1),
    ("import os; os._exit(4)", 4),
    ("import atexit; atexit.register(print, 'bye')", 0),
    ("import sys; sys.excepthook = lambda *a: print('hooked'); 1 / 0", 1),
]


@pytest.mark.parametrize(("text", "code"), EXITS)
def test_the_exit_code_and_last_words_are_the_scripts(
    tmp_path: Path, mixpert: Mixpert, text: str, code: int
) -> None:
    (tmp_path / "s.py").write_text(text)
    ours, theirs = mixpert("run", "s.py"), python(tmp_path, "s.py")
    assert ours.code == theirs.code == code
    assert (ours.out, ours.err) == (theirs.out, theirs.err)


OUTPUTS = {
    "closed": "sys.stdout.close()",
    "of its own": "sys.stdout = type('Sink', (), {'write': lambda self, text: None})()",
    "of its own, closed": "sys.stdout = open(os.devnull, 'w'); sys.stdout.close()",
}


@pytest.mark.parametrize("what", OUTPUTS.values(), ids=OUTPUTS)
def test_what_becomes_of_stdout_is_the_programs_affair(
    tmp_path: Path, mixpert: Mixpert, what: str
) -> None:
    (tmp_path / "s.py").write_text(
        f"import os, sys; print('begun', flush=True); {what}; sys.exit(3)\n"
    )
    ours, theirs = mixpert("run", "s.py"), python(tmp_path, "s.py")
    assert (ours.code, ours.out) == (theirs.code, theirs.out)
    assert "internal error" not in ours.err
    assert "mixpert" not in ours.err


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


def test_scheme_and_plan_change_what_runs(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text(PRODUCT)
    native = mixpert("run", "s.py").out
    float32 = mixpert("run", "--scheme", "float32", "s.py").out
    assert float32 != native
    site = json.loads(mixpert("sites", "--json", "s.py").out)[0]["id"]
    plan = f'[[site]]\nid = "{site}"\nscheme = "float32"\n'
    (tmp_path / "p.toml").write_text(plan)
    assert mixpert("run", "--plan", "p.toml", "s.py").out == float32
    assert mixpert("run", "s.py", MIXPERT_PLAN="p.toml").out == float32
    (tmp_path / "s.mixpert.toml").write_text(plan)
    assert mixpert("run", "s.py").out == float32


def test_what_cannot_run_here_is_said_and_emulated_on_request(
    tmp_path: Path, mixpert: Mixpert
) -> None:
    (tmp_path / "s.py").write_text(PRODUCT)
    native = mixpert("run", "s.py")
    assert not native.err
    said = mixpert("run", "--scheme", "int8x1", "s.py", CUDA_VISIBLE_DEVICES="")
    assert (said.code, said.out) == (0, native.out)
    [line] = said.err.splitlines()
    assert line.startswith("mixpert: int8x1: native here, since ")
    assert line.endswith("; --backend reference emulates")
    assert not mixpert("run", "--scheme", "float32", "s.py").err
    unknown = mixpert("run", "--scheme", "int9", "s.py")
    assert unknown.code == 2
    assert len(unknown.err.splitlines()) == 1
    emulated = mixpert("run", "--scheme", "int8x1", "--backend", "reference", "s.py")
    assert (emulated.code, emulated.err) == (0, "")
    assert emulated.out != native.out
    refused = mixpert("run", "--backend", "nonsense", "s.py")
    assert refused.code == 2
    assert "unknown backend 'nonsense'" in refused.err


def test_what_the_compiler_warns_of_is_said_in_every_run(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text(f"{PRODUCT}print(a is 5)\n")
    theirs = python(tmp_path, "s.py")
    assert "SyntaxWarning" in theirs.err
    for _ in range(2):
        assert mixpert("run", "s.py", PYTHONDONTWRITEBYTECODE="") == theirs
    ours = mixpert("run", "s.py", PYTHONWARNINGS="error::SyntaxWarning")
    assert ours.code == 1
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
    path = "import sys; print([e for e in sys.path if not e.endswith('bin')][:1], sys.argv)"
    for words in ([str(script), "-x"], ["-m", "json.tool", "--help"], ["-c", path, "x"]):
        theirs = from_a_removed_folder(tmp_path, *words)
        assert from_a_removed_folder(tmp_path, "-m", "mixpert_py", "run", *words) == theirs
        assert theirs.code == 0


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["run", "world.py"], "mixpert: world.py: no such file or directory"),
        (["tune", "--error", "1e-3", "{}/world.py"], "mixpert: the current folder was removed"),
        (["sites", "."], "mixpert: the current folder was removed"),
    ],
    ids=lambda value: " ".join(value)[:8],
)
def test_what_a_removed_working_folder_leaves_out(
    tmp_path: Path, command: list[str], said: str
) -> None:
    (tmp_path / "world.py").write_text(WORLD)
    given = [word.format(tmp_path) for word in command]
    ours = from_a_removed_folder(tmp_path, "-m", "mixpert_py", *given)
    assert ours.one_clear_line().startswith(said)
    assert ours.code == 2


def test_a_safe_path_holds_for_modules_too(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "near.py").write_text(PRODUCT)
    assert mixpert("run", "-m", "near").code == 0
    said = mixpert("run", "-m", "near", PYTHONSAFEPATH="1")
    assert said.one_clear_line() == "mixpert: -m near: no such module with Python source"
