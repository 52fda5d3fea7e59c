"""`mixpert run`: the modules of the project are rewritten too, in child processes as well."""

import json
from pathlib import Path

import pytest

from tests.mixpert_py.command import Mixpert, called
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


def write_package(folder: Path) -> None:
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "__init__.py").write_text("from pkg.near import work\n")
    (folder / "pkg" / "near.py").write_text(
        "def work(a):\n    return float((a @ a)[0, 0])  # of another file\n"
    )


@pytest.mark.parametrize("method", ["spawn"])
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


@pytest.mark.parametrize("program", [("-m", "pkg.main"), ("scripts/s.py",)])
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


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_processes_run_the_rewritten_program(
    tmp_path: Path, mixpert: Mixpert, method: str
) -> None:
    (tmp_path / "s.py").write_text(SPAWN.format(method=method))
    assert mixpert("run", "s.py").out.startswith("False")
    said = mixpert("run", "--scheme", "float32", "s.py")
    assert said.out.startswith("True"), said


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


# Of modules that are imported before the program, with its first product, or after it.
# msvcrt is Python's on another system.
NAMES = ("uuid", "locale", "click", "msgspec", "queue", "_socket", "msvcrt", "rich")
USES_NAMES = """\
import numpy as np
import {names}

def work(x):
    return [module.f(x)[0, 0] for module in ({names},)]

if __name__ == "__main__":
    x = np.full((800, 800), 1 / 3)
    print(*map(type, work(x)))
"""


@pytest.mark.parametrize("words", [("-m", "main")], ids=" ".join)
def test_a_programs_own_modules_come_first_for_it_alone(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text("def f(x):\n    return x @ x\n")
    (tmp_path / "main.py").write_text(USES_NAMES.format(names=", ".join(NAMES)))
    said = called("mixpert_py", "run", "--profile", "--scheme", "float32", *words, folder=tmp_path)
    assert said.code == 0, said
    assert said.out == python(tmp_path, *words).out
    for name in NAMES:
        assert f"{name}.py" in said.err


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
