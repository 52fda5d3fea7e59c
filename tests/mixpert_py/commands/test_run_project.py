"""`mixpert run`: the modules of the project are rewritten too, in child processes as well."""

import json
from pathlib import Path

import pytest

from tests.mixpert_py.command import Shell, called
from tests.mixpert_py.commands.run_program import python

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


PACKAGE = {
    "pkg/__init__.py": "from pkg.near import work\n",
    "pkg/near.py": "def work(a):\n    return float((a @ a)[0, 0])  # of another file\n",
}
USES_NEAR = "import numpy as np\nfrom pkg import work\nwork(np.ones((8, 8)))\n"


def test_child_processes_rewrite_the_modules_of_the_project(sh: Shell) -> None:
    sh.write({**PACKAGE, "s.py": NEAR.format(method="spawn")})
    sh("run s.py", out="False\n")
    sh("run --scheme float32 s.py", out="True\n")


def test_a_project_may_ask_for_the_same_bits_in_every_run(sh: Shell) -> None:
    text = "from mixpert_py.runtime.gpu.start import start\nprint(start.waits)\n"
    sh.write({"s.py": text})
    sh("run s.py", out="False\n")
    sh.write({"pyproject.toml": "[tool.mixpert]\nreproducible = true\n"})
    sh("run s.py", out="True\n")
    sh.write({"t.py": f"import mixpert_py\n{text}mixpert_py.matmul, print(start.asks())\n"})
    assert python(sh.folder, "t.py").out == "False\nTrue\n"
    text = text.replace(
        "print(start.waits)", "def work(a):\n    return 1.0 if start.waits else 1 / 3"
    )
    sh.write({**PACKAGE, "pkg/near.py": text, "s.py": NEAR.format(method="spawn")})
    sh("run s.py", out="True\n")


def test_modules_of_the_project_are_in_the_profile(sh: Shell) -> None:
    sh.write({**PACKAGE, "s.py": f"{USES_NEAR}np.ones((2, 2)) @ np.ones((2, 2))\n"})
    near = str(sh.folder / "pkg" / "near.py")
    sh("run --scheme float32 --json p.json s.py")
    first, second = json.loads(sh.read("p.json"))
    record = first if first["id"].startswith("pkg.near:work/") else second
    assert (record["path"], record["line"], record["expression"]) == (near, 2, "a @ a")
    assert record["reasons"] == {"too small": 1}


def test_a_program_of_any_kind_has_a_project_and_what_is_installed_is_none(sh: Shell) -> None:
    sh.write({**PACKAGE, "pyproject.toml": "", "pkg/main.py": USES_NEAR})
    path = f"import sys\nsys.path.append({str(sh.folder)!r})\n{USES_NEAR}"
    sh.write({"scripts/s.py": path})
    for program in ("-m pkg.main", "scripts/s.py"):
        (record,) = sh.profile(program)
        assert record["id"].startswith("pkg.near:work/")
    sh.write({f"other/.venv/lib/{name}": text for name, text in PACKAGE.items()})
    installed = str(sh.folder / "other/.venv/lib")
    text = f"import sys\nsys.path.append({installed!r})\n{USES_NEAR}"
    sh.write({"other/s.py": text, "other/pyproject.toml": ""})
    assert sh.profile("other/s.py") == []


FAILING_MODULES = ["x = (1 @\n", "def f(a):\n    return a @ 5\n\n\nf(5)\n", "import no_such_one\n"]


def test_a_module_that_fails_shows_pythons_own_traceback(sh: Shell) -> None:
    for text in FAILING_MODULES:
        sh.write({"near.py": text, "s.py": "import numpy as np\nimport near\n"})
        assert sh("run s.py", 1) == python(sh.folder, "s.py")
    sh.write({"pkg/__init__.py": "{}['missing']\n", "pkg/__main__.py": ""})
    said = sh("run -m pkg", 1, err="KeyError: 'missing'")
    assert "mixpert_py/launch" not in said.err


def test_the_second_run_rewrites_nothing(sh: Shell) -> None:
    counts = "import sys\nprint(sum('passes' in name for name in sys.modules))\n"
    sh.write({**PACKAGE, "s.py": f"{USES_NEAR}{counts}"})
    kept = {"PYTHONDONTWRITEBYTECODE": "", "XDG_CACHE_HOME": str(sh.folder)}
    said = [int(sh("run s.py", **kept).out) for _ in range(3)]
    assert said[0] > said[1] == said[2]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_processes_run_the_rewritten_program(sh: Shell, method: str) -> None:
    sh.write({"s.py": SPAWN.format(method=method)})
    assert sh("run s.py").out.startswith("False")
    assert sh("run --scheme float32 s.py").out.startswith("True")


FORKED = """\
import multiprocessing, os, sys
import numpy as np

def work(queue):
    queue.put(float((np.eye(3) @ np.eye(3)).sum()))

def spawned():
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=work, args=(queue,))
    child.start()
    child.join()
    print(child.exitcode, queue.get() if child.exitcode == 0 else None, flush=True)

if __name__ == "__main__":
    spawned()
    if os.fork() == 0:
        sys.exit()
    os.wait()
    spawned()
    if os.fork():
        sys.exit()
    spawned()
"""


def test_children_may_be_spawned_after_either_side_of_a_fork_has_ended(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(FORKED)
    said = called("mixpert_py", "run", "s.py", folder=tmp_path)
    assert said == python(tmp_path, "s.py")
    assert said.out == "0 3.0\n" * 3


# Of modules that are imported before the program. msvcrt is Python's on another system.
NAMES = ("uuid", "locale", "click", "queue", "_socket", "msvcrt")
USES_NAMES = """\
import numpy as np
import {names}

def work(x):
    return [module.f(x)[0, 0] for module in ({names},)]

if __name__ == "__main__":
    x = np.full((800, 800), 1 / 3)
    print(*map(type, work(x)))
"""


def test_a_programs_own_modules_come_first_for_it(sh: Shell) -> None:
    sh.write({f"{name}.py": "def f(x):\n    return x @ x\n" for name in NAMES})
    sh.write({"main.py": USES_NAMES.format(names=", ".join(NAMES))})
    words = ("run", "--profile", "--scheme", "float32", "-m", "main")
    said = called("mixpert_py", *words, folder=sh.folder)
    assert (said.code, said.out) == (0, python(sh.folder, "-m", "main").out), said
    assert all(f"{name}.py" in said.err for name in NAMES)
