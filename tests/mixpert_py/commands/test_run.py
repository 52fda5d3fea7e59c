"""`mixpert run`: the program behaves as under `python`, and its products as the plan says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mixpert_py.command import Mixpert, Said

PRODUCT = """\
import sys
import numpy as np
a = np.arange(640000.0).reshape(800, 800) / 1e6
b = a @ a
print(float(b[3, 4]).hex())
"""


def python(tmp_path: Path, *arguments: str) -> Said:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    return Said(done.returncode, done.stdout, done.stderr)


WORLD = """\
import sys, numpy as np
class Point:
    pass
print(sys.argv, __name__, __file__, sys.path[0], __spec__, __package__, __doc__)
print(sys.modules["__main__"].__dict__ is globals(), Point.__module__)
print(np.eye(2) @ np.ones(2))
import pickle
pickle.loads(pickle.dumps(Point()))
"""


def test_a_script_sees_the_world_that_python_shows_it(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "world.py").write_text(f'"""Its words."""\n{WORLD}')
    ours, theirs = (
        mixpert("run", "world.py", "--profile", "-x"),
        python(tmp_path, "world.py", "--profile", "-x"),
    )
    assert ours == theirs
    assert ours.code == 0


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


def test_a_text_sees_the_world_that_python_shows_it(tmp_path: Path, mixpert: Mixpert) -> None:
    text = (
        "import sys, numpy as np; print(sys.argv, __name__, sys.path[0], np.ones(2) @ np.ones(2))"
    )
    ours, theirs = (
        call("-c", text, "-m", "x")
        for call in (lambda *a: mixpert("run", *a), lambda *a: python(tmp_path, *a))
    )
    assert ours == theirs


FAILING = """\
import numpy as np

def product(a, b):
    return (a +
            0) @ b

def outer():
    try:
        product(np.ones((2, 3)), np.ones((2, 3)))
    except ValueError as error:
        raise RuntimeError("no product") from error

outer()
"""


def test_tracebacks_and_carets_are_pythons_own(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    ours, theirs = mixpert("run", "failing.py"), python(tmp_path, "failing.py")
    assert ours.code == theirs.code == 1
    assert ours.err == theirs.err
    assert ours.out == theirs.out == ""


EXITS = [
    ("import sys; sys.exit(3)", 3),
    ("import sys; sys.exit()", 0),
    ("import sys; sys.exit('bad luck')", 1),
    ("raise SystemExit(7)", 7),
    ("import os; os._exit(4)", 4),
    ("1 / 0", 1),
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
    "none": "sys.stdout = None",
    "detached": "sys.stdout.detach()",
    "of its own": "sys.stdout = type('Sink', (), {'write': lambda self, text: None})()",
    "of its own, closed": "sys.stdout = open(os.devnull, 'w'); sys.stdout.close()",
}


@pytest.mark.parametrize("end", ["", "; sys.exit(3)"], ids=["ends", "exits"])
@pytest.mark.parametrize("what", OUTPUTS.values(), ids=OUTPUTS)
def test_what_becomes_of_stdout_is_the_programs_affair(
    tmp_path: Path, mixpert: Mixpert, what: str, end: str
) -> None:
    (tmp_path / "s.py").write_text(f"import os, sys; print('begun', flush=True); {what}{end}\n")
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
    tmp_path: Path, mixpert: Mixpert, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are told before NumPy is imported; else they would spin for 0.1 s."""
    monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT", raising=False)
    (tmp_path / "s.py").write_text(IDLE)
    assert mixpert("run", "s.py") == Said(0, "20 True\n", "")
    assert mixpert("run", "s.py", OPENBLAS_THREAD_TIMEOUT="4") == Said(0, "4 True\n", "")


def test_a_product_is_native_without_a_plan(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text(PRODUCT)
    assert mixpert("run", "s.py") == python(tmp_path, "s.py")


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


THREADS = """\
import threading
import numpy as np
a = np.full((800, 800), 1 / 3)
found = []
def work():
    found.append(float((a @ a)[0, 0]))
thread = threading.Thread(target=work)
thread.start()
thread.join()
work()
print(found[0] == found[1], found[0] == float(sum(a[0] * a[0])))
print(float(np.float32(found[0])) == found[0])
"""


def test_new_threads_see_the_plan(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text(THREADS)
    assert mixpert("run", "--scheme", "float32", "s.py").out.endswith("True\n")
    assert mixpert("run", "--scheme", "float32", "s.py").out.startswith("True False")


SPAWN = """\
import multiprocessing
import numpy as np

class Job:
    def __init__(self, a):
        self.a = a

def work(job):
    return float((job.a @ job.a)[0, 0]), work.__module__

if __name__ == "__main__":
    multiprocessing.set_start_method({method!r})
    with multiprocessing.Pool(1) as pool:
        value, module = pool.map(work, [Job(np.full((800, 800), 1 / 3))])[0]
    print(float(np.float32(value)) == value, module)
"""


NEAR = """\
import multiprocessing
import numpy as np
from pkg.near import work

if __name__ == "__main__":
    multiprocessing.set_start_method({method!r})
    with multiprocessing.Pool(1) as pool:
        value = pool.map(work, [np.full((800, 800), 1 / 3)])[0]
    print(float(np.float32(value)) == value)
"""


def write_package(folder: Path) -> None:
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "__init__.py").write_text("from pkg.near import work\n")
    (folder / "pkg" / "near.py").write_text(
        "def work(a):\n    return float((a @ a)[0, 0])  # of another file\n"
    )


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_processes_rewrite_the_modules_of_the_project(
    tmp_path: Path, mixpert: Mixpert, method: str
) -> None:
    write_package(tmp_path)
    (tmp_path / "s.py").write_text(NEAR.format(method=method))
    assert mixpert("run", "s.py").out == "False\n"
    assert mixpert("run", "--scheme", "float32", "s.py").out == "True\n"


USES_NEAR = "import numpy as np\nfrom pkg import work\nwork(np.ones((8, 8)))\n"


def test_modules_of_the_project_are_in_the_profile(tmp_path: Path, mixpert: Mixpert) -> None:
    write_package(tmp_path)
    (tmp_path / "s.py").write_text(f"{USES_NEAR}np.ones((2, 2)) @ np.ones((2, 2))\n")
    near = str(tmp_path / "pkg" / "near.py")
    said = mixpert("run", "--strict", "--scheme", "float32", "--json", "p.json", "s.py")
    records = {record["id"]: record for record in json.loads((tmp_path / "p.json").read_text())}
    (record,) = (record for site, record in records.items() if site.startswith("pkg.near:work/"))
    assert (record["path"], record["line"], record["expression"]) == (near, 2, "a @ a")
    assert len(records) == 2
    assert f"mixpert: {near}:2: a @ a: ran native: too small (1 call)" in said.err
    assert "mixpert: s.py:4: " in said.err
    plan = f'[[site]]\nid = "{record["id"]}"\nscheme = "float32"\n'
    (tmp_path / "p.toml").write_text(plan)
    said = mixpert("run", "--strict", "--plan", "p.toml", "s.py")
    assert "near.py:2" in said.one_clear_line()


@pytest.mark.parametrize("program", [("-m", "pkg.main"), ("-c", USES_NEAR), ("scripts/s.py",)])
def test_a_program_of_any_kind_has_a_project(
    tmp_path: Path, mixpert: Mixpert, program: tuple[str, ...]
) -> None:
    write_package(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "pkg" / "main.py").write_text(USES_NEAR)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "s.py").write_text(
        f"import sys\nsys.path.append({str(tmp_path)!r})\n{USES_NEAR}"
    )
    assert mixpert("run", "--json", "p.json", *program).code == 0
    (record,) = json.loads((tmp_path / "p.json").read_text())
    assert record["id"].startswith("pkg.near:work/")


def test_what_is_installed_is_no_project(tmp_path: Path, mixpert: Mixpert) -> None:
    installed = tmp_path / ".venv" / "lib"
    write_package(installed)
    (tmp_path / "s.py").write_text(f"import sys\nsys.path.append({str(installed)!r})\n{USES_NEAR}")
    assert mixpert("run", "--json", "p.json", "s.py").code == 0
    assert json.loads((tmp_path / "p.json").read_text()) == []


FAILING_MODULES = ["x = (1 @\n", "def f(a):\n    return a @ 5\n\n\nf(5)\n", "import no_such_one\n"]


@pytest.mark.parametrize("text", FAILING_MODULES)
def test_a_module_that_fails_shows_pythons_own_traceback(
    tmp_path: Path, mixpert: Mixpert, text: str
) -> None:
    (tmp_path / "near.py").write_text(text)
    (tmp_path / "s.py").write_text("import numpy as np\nimport near\n")
    assert mixpert("run", "s.py") == python(tmp_path, "s.py")


def test_what_the_compiler_warns_of_is_said_in_every_run(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text(f"{PRODUCT}print(a is 5)\n")
    theirs = python(tmp_path, "s.py")
    assert "SyntaxWarning" in theirs.err
    for _ in range(2):
        assert mixpert("run", "s.py", PYTHONDONTWRITEBYTECODE="") == theirs
    ours = mixpert("run", "s.py", PYTHONWARNINGS="error::SyntaxWarning")
    assert ours.code == 2
    assert ours.one_clear_line().startswith('mixpert: s.py: line 6: "is" with a literal')


def test_the_second_run_rewrites_nothing(tmp_path: Path, mixpert: Mixpert) -> None:
    write_package(tmp_path)
    (tmp_path / "s.py").write_text(
        f"{USES_NEAR}import sys\nprint(sum('passes' in name for name in sys.modules))\n"
    )
    said = [
        int(mixpert("run", "s.py", PYTHONDONTWRITEBYTECODE="", XDG_CACHE_HOME=str(tmp_path)).out)
        for _ in range(3)
    ]
    assert said[0] > said[1] == said[2]


def test_python_may_be_told_to_keep_no_code(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text("import numpy as np\nprint((np.eye(2) @ np.eye(2)).sum())\n")
    for told, kept in (("1", False), ("", True)):
        done = mixpert(
            "run", "s.py", PYTHONDONTWRITEBYTECODE=told, XDG_CACHE_HOME=str(tmp_path / "cache")
        )
        assert done.out == "2.0\n"
        assert (tmp_path / "cache").exists() == kept


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_processes_run_the_rewritten_program(
    tmp_path: Path, mixpert: Mixpert, method: str
) -> None:
    (tmp_path / "s.py").write_text(SPAWN.format(method=method))
    assert mixpert("run", "s.py").out.startswith("False")
    said = mixpert("run", "--scheme", "float32", "s.py")
    assert said.out.startswith("True"), said


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
    (tmp_path / "s.py").write_text(PRODUCT.replace(" / 1e6", ".astype(int)"))
    said = mixpert("run", "--strict", "--scheme", "float32", "s.py")
    assert said.code == 1
    assert said.one_clear_line().endswith("s.py:4: a @ a: ran native: integer dtype (1 call)")
    assert mixpert("run", "--strict", "s.py").code == 0


BAD = [
    ("a missing file", ("none.py",), "no such file"),
    ("a folder", (".",), "is a directory"),
    ("a missing module", ("-m", "no_such_module_here"), "no such module"),
    ("nothing to run", (), "give a SCRIPT"),
    ("an unknown scheme", ("--scheme", "int9", "s.py"), "int9"),
    ("a missing plan", ("--plan", "none.toml", "s.py"), "none.toml"),
    ("a script that does not parse", ("broken.py",), "broken.py"),
    ("a script with a NUL byte", ("nul.py",), "nul.py: line 1: source code"),
]


@pytest.mark.parametrize(("arguments", "word"), [row[1:] for row in BAD], ids=[r[0] for r in BAD])
def test_bad_input_gets_one_clear_line(
    tmp_path: Path, mixpert: Mixpert, arguments: tuple[str, ...], word: str
) -> None:
    (tmp_path / "s.py").write_text(PRODUCT)
    (tmp_path / "broken.py").write_text("a = (1 @\n")
    (tmp_path / "nul.py").write_bytes(b"x = 1\n\0\n")
    said = mixpert("run", *arguments)
    assert said.code == 2
    assert word in said.err
    assert "Traceback" not in said.err
    assert said.out == ""


def test_what_is_too_deep_to_rewrite_runs_as_it_is(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "s.py").write_text(f"{PRODUCT}x = {'-' * 300}1\nprint(x)\n")
    said = mixpert("run", "--scheme", "float32", "s.py")
    assert (said.code, said.out) == (0, python(tmp_path, "s.py").out)
    assert "s.py: nested more than 250 levels" in said.err


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


def test_an_unwritable_profile_is_found_before_the_program_runs(
    tmp_path: Path, mixpert: Mixpert
) -> None:
    (tmp_path / "s.py").write_text("print('ran')\n")
    said = mixpert("run", "--json", "no/where.json", "s.py")
    assert said.code == 2
    assert "no/where.json" in said.one_clear_line()
    assert said.out == ""


RAISING = [
    "raise ExceptionGroup('several', [ValueError(1), KeyError(2)])",
    "import threading\nt = threading.Thread(target=lambda: f(a, 3))\nt.start(); t.join()",
    "def hook(*a): raise RuntimeError('of the hook')\nimport sys; sys.excepthook = hook\n1 / 0",
    "try:\n    f(a, 3)\nexcept Exception as e:\n    raise ExceptionGroup('g', [e])",
]


@pytest.mark.parametrize("text", RAISING)
def test_no_frame_of_ours_is_printed(tmp_path: Path, mixpert: Mixpert, text: str) -> None:
    (tmp_path / "s.py").write_text(
        f"import numpy as np\na = np.eye(2)\ndef f(x, y):\n    return x @ y\n{text}\n"
    )
    ours, theirs = mixpert("run", "s.py"), python(tmp_path, "s.py")
    assert ours.code == theirs.code
    assert ours.err == theirs.err


def test_a_large_plan_does_not_burden_child_processes(tmp_path: Path, mixpert: Mixpert) -> None:
    site = '[[site]]\nid = "s:f/matmul~{:x}#0"\nscheme = "native"\n'
    (tmp_path / "p.toml").write_text("".join(site.format(n) for n in range(4500)))
    (tmp_path / "s.py").write_text("import subprocess\nsubprocess.run(['true'], check=True)\n")
    assert mixpert("run", "--plan", "p.toml", "s.py").code == 0


@pytest.mark.parametrize("option", ["-c", "-m"])
def test_an_option_without_its_value_is_a_usage_error(mixpert: Mixpert, option: str) -> None:
    said = mixpert("run", option)
    assert said.code == 2
    assert "requires an argument" in said.err


def test_a_package_that_fails_on_import_shows_its_own_traceback(
    tmp_path: Path, mixpert: Mixpert
) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("{}['missing']\n")
    (tmp_path / "pkg" / "__main__.py").write_text("")
    said = mixpert("run", "-m", "pkg")
    assert said.code == 1
    assert "KeyError: 'missing'" in said.err
    assert "launcher.py" not in said.err


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


def test_a_pool_that_is_left_open_ends_with_its_work(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "p.py").write_text(
        "import time\nfrom concurrent.futures import ThreadPoolExecutor\nimport numpy as np\n\n"
        "def work(i):\n    time.sleep(0.2)\n    product = np.eye(2) @ np.eye(2)\n"
        "    print(f'{i} {product.sum()}\\n', end='')  # in one piece\n\n"
        "pool = ThreadPoolExecutor(2)\nfor i in range(3):\n    pool.submit(work, i)\n"
    )
    said = mixpert("run", "--json", "p.json", "p.py")
    assert (said.code, sorted(said.out.split())) == (0, ["0", "1", "2", *["2.0"] * 3])
    (record,) = json.loads((tmp_path / "p.json").read_text())
    assert record["calls"] == 3
