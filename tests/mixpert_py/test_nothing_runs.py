"""The commands that read programs run nothing of them: seen by Python's own audit events."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mixpert_py.command import Said, child_environment

# Runs `python -m mixpert_py ARGS…` for each argument in the current folder, and says what of that
# folder was run. The imports are made once: what was imported from there would be found then.
WATCHED = """
import io, os, runpy, sys
project = os.getcwd()
FORBIDDEN = {"os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen"}

def tell(*words):
    os.write(1, f"RUN {words}\\n".encode())

def watch(event, arguments):
    if event == "exec":
        name = getattr(arguments[0], "co_filename", "")
        if name == "<unknown>" or name.startswith(project):
            tell(name)
    elif event in FORBIDDEN or event.startswith("cpython.run"):
        tell(event, arguments)
    elif event == "import" and arguments[0].startswith("canary"):
        tell("import", arguments[0])

def left_by(command):
    sys.argv = ["mixpert", *command.split()]
    sys.path[0] = project
    sys.stdout, sys.stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    code = 0
    try:
        runpy.run_module("mixpert_py", run_name="__main__", alter_sys=True)
    except SystemExit as stop:
        code = stop.code or 0
    return code, *(text(stream) for stream in (sys.stdout, sys.stderr))

def text(stream):
    stream.flush()
    return stream.buffer.getvalue().decode()

commands = sys.argv[1:]
sys.addaudithook(watch)
left = [left_by(command) for command in commands]
os.write(1, f"{left}\\n".encode())
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


def shadow(folder: Path) -> None:
    """Write modules of such names, which tell where one is run."""
    for name in SHADOWED:
        (folder / f"{name}.py").write_text(CANARY)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shadow(tmp_path)
    (tmp_path / "net.py").write_text(PROGRAM)
    (tmp_path / "codec.py").write_text("# coding: canary_module\na @ b\n")
    package = tmp_path / "canary_package"
    package.mkdir()
    for name in ("__init__.py", "__main__.py", "conftest.py", "setup.py"):
        (package / name).write_text(PROGRAM)
    return tmp_path


COMMANDS = [
    "rewrite --diff .",
    "rewrite -w .",
    "sites .",
    "graph .",
    "rewrite net.py canary_package/setup.py",
]


def watched(folder: Path, *commands: str, **environment: str) -> tuple[list[str], list[Said]]:
    """What of a folder is run by commands in it, one after the other, and what each leaves."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *commands],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=60,
        env=child_environment(**environment),
    )
    assert done.returncode == 0, done.stderr
    *ran, left = done.stdout.splitlines()
    return ran, [Said(*one) for one in ast.literal_eval(left)]


def test_nothing_of_the_users_is_run(project: Path) -> None:
    ran, left = watched(project, *COMMANDS)
    assert not ran
    assert not (project / "canary").exists()
    for command, said in zip(COMMANDS, left, strict=True):
        assert "Traceback" not in said.err
        assert said.code == (0 if "setup.py" in command else 2), said
        if "." in command.split():
            assert said.err.splitlines()[0].startswith("mixpert: ./codec.py: cannot be decoded")


def test_the_watch_sees_a_program_that_runs(project: Path) -> None:
    ran, _ = watched(project, "run canary_module.py")
    assert ran
    assert (project / "canary").exists()
