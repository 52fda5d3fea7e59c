"""The commands that read programs run nothing of them: seen by Python's own audit events."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mixpert_py.command import IMPORTABLE

# Runs `python -m mixpert_py ARGS…` in the current folder, and says what of that folder was run.
WATCHED = """
import os, runpy, sys
project = os.getcwd()
sys.path[0] = project
FORBIDDEN = {"os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen"}

def watch(event, arguments):
    if event == "exec":
        name = getattr(arguments[0], "co_filename", "")
        if name == "<unknown>" or name.startswith(project):
            print("RUN", name)
    elif event in FORBIDDEN or event.startswith("cpython.run"):
        print("RUN", event, arguments)
    elif event == "import" and arguments[0].startswith("canary"):
        print("RUN import", arguments[0])

sys.addaudithook(watch)
runpy.run_module("mixpert_py", run_name="__main__", alter_sys=True)
"""
CANARY = "open('canary', 'w').close()\n"
PROGRAM = f"""\
import canary_module, numpy as np
from canary_package import w
{CANARY}
@(lambda f: open('canary', 'w') and f)
def f(x=open('canary', 'w')):
    return x @ w
class C(metaclass=canary_module.Meta):
    c = np.dot(f(open('canary', 'w')), w)
    c @= w
"""
# Names that the command line, the rewriter, or what they stand on may import late.
SHADOWED = [
    *("click", "libcst", "yaml", "typing_extensions", "msgspec", "tomlkit", "rich", "networkx"),
    *("numpy", "numba", "cupy", "scipy", "difflib", "json", "fnmatch", "concurrent", "queue"),
    *("multiprocessing", "tokenize", "symtable", "sitecustomize", "runtime", "passes", "tuner"),
    "canary_module",
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in SHADOWED:
        (tmp_path / f"{name}.py").write_text(CANARY)
    (tmp_path / "net.py").write_text(PROGRAM)
    (tmp_path / "codec.py").write_text("# coding: canary_module\na @ b\n")
    package = tmp_path / "canary_package"
    package.mkdir()
    for name in ("__init__.py", "__main__.py", "conftest.py", "setup.py"):
        (package / name).write_text(PROGRAM)
    return tmp_path


COMMANDS = [
    "rewrite --diff .",
    "rewrite -w -j 2 .",
    "unrewrite -w .",
    "sites .",
    "graph .",
    "rewrite net.py canary_package/setup.py",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_of_the_users_is_run(project: Path, command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *command.split()],
        capture_output=True,
        text=True,
        cwd=project,
        timeout=60,
        env={**os.environ, "PYTHONPATH": IMPORTABLE},
    )
    assert "RUN" not in done.stdout
    assert not (project / "canary").exists()
    assert "Traceback" not in done.stderr
    assert done.returncode == (0 if "setup.py" in command else 2)
    if "." in command.split():
        assert done.stderr.splitlines()[0].startswith("mixpert: ./codec.py: cannot be decoded")


def test_the_watch_sees_a_program_that_runs(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, "run", "canary_module.py"],
        capture_output=True,
        text=True,
        cwd=project,
        timeout=60,
        env={**os.environ, "PYTHONPATH": IMPORTABLE},
    )
    assert "RUN" in done.stdout
    assert (project / "canary").exists()
