"""What commands run and write: nothing of a program unless it is asked for."""

import ast
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.mixpert_py.command import ROOT, Said, child_environment, forked

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


TEXT = (ROOT / "docs" / "limits.md").read_text("utf-8").partition("\n## Security\n")[2]

PLAN = """\
[provenance]
source = "canary_module.py"
command = "mixpert tune canary_module.py --criterion canary_module:f --compare canary_module.py"

[[criterion]]
name = "x"
metric = "canary_module:f"
budget = 1.0

[[site]]
id = "canary_module:f/matmul~145133#0"
scheme = "int8x6"
"""
SAFE = {
    "report m.mixpert.toml --html page": 2,  # there are no trials
    "doctor": 0,
    "probe --only clock": 2,  # there is no GPU
}


@pytest.fixture
def safe_project(tmp_path: Path) -> Path:
    shadow(tmp_path)
    (tmp_path / "m.mixpert.toml").write_text(PLAN)
    return tmp_path


def test_commands_that_look_at_plans_and_machines_run_nothing(safe_project: Path) -> None:
    ran, left = watched(safe_project, *SAFE, CUDA_VISIBLE_DEVICES="")
    assert not [line for line in ran if "canary" in line or str(safe_project) in line]
    assert not (safe_project / "canary").exists()
    for command, said in zip(SAFE, left, strict=True):
        assert "Traceback" not in said.err
        assert said.code == SAFE[command], said


def test_a_report_runs_nothing_of_the_program(safe_project: Path) -> None:
    """Of one that has been tuned before it became what it is."""
    script = safe_project / "m.py"
    script.write_text("import numpy as np\na = np.eye(30)\nb = a @ a\nc = np.dot(b, a)\n")
    (safe_project / "m.mixpert.toml").unlink()
    empty = safe_project / "empty"
    empty.mkdir()
    shutil.copy(script, empty)
    tune = "tune", "m.py", "--error", "1e-3", "--backend", "reference", "-o", "m.mixpert.toml"
    said = forked("mixpert_py", *tune, folder=empty)
    assert said.code == 0, said
    for path in empty.glob("m.mixpert.*"):
        shutil.copy(path, safe_project)
    script.write_text(f"import canary_module\n{CANARY}{script.read_text()}")
    ran, (said,) = watched(safe_project, "report m.mixpert.toml --html page")
    assert said.code == 0, said
    assert (safe_project / "page" / "index.html").exists()
    assert not ran
    assert not (safe_project / "canary").exists()


@cache
def calls(path: Path) -> frozenset[str]:
    """What a file calls by name: `exec`, `pickle.loads`."""
    nodes = ast.walk(ast.parse(path.read_bytes()))
    return frozenset(ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call))


RUNNING = {
    "exec": {
        "mixpert_py/launch/running.py",  # a program
        "mixpert_py/launch/spawned_main.py",  # in a child that it spawned
        "mixpert_py/notebook.py",  # a cell
        "mixpert_py/tuning/cell.py",  # one that is tuned
    },
    "eval": {
        "mixpert_py/notebook.py",
        "mixpert_py/tuning/cell.py",
        "mixpert_py/execution/worker.py",  # `norm(b)` of a program, in the process that runs it
    },
    "marshal.loads": {
        "mixpert_py/sources/in_memory.py",  # of the cache
        "mixpert_py/execution/worker.py",  # of a run's folder
    },
    "pickle.loads": {"runtime/products/dask_array.py"},  # of Dask's workers
    "pickle.load": set(),
    "os.system": set(),
}


def own_files() -> list[Path]:
    return [
        path
        for part in ("mixpert_py", "passes", "runtime", "tuner")
        for path in (ROOT / part).rglob("*.py")
        if not (
            part == "mixpert_py"
            and path.relative_to(ROOT).parts[1] in ("passes", "runtime", "tuner")
        )
    ]


@pytest.mark.parametrize("function", RUNNING)
def test_code_is_run_and_unpickled_in_few_places(function: str) -> None:
    found = {str(p.relative_to(ROOT)) for p in own_files() if function in calls(p)}
    assert found == RUNNING[function]


def test_nothing_listens_but_dask_and_no_array_is_unpickled() -> None:
    for path in own_files():
        text = path.read_text()
        assert "AF_INET" not in text, path
        assert "allow_pickle=True" not in text, path
        assert "shell=True" not in text, path
        named = {name.rpartition(".")[2] for name in calls(path) if "socket" in name.lower()}
        assert not named & {"bind", "listen", "create_server"}, path


def test_environment_variables_are_named() -> None:
    variables = set()
    for name in ("config.py", "cli.py"):
        for node in ast.walk(ast.parse((ROOT / "mixpert_py" / name).read_bytes())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                variables |= set(re.findall(r"^[A-Z]+(?:_[A-Z]+)+$", node.value))
    assert {"MIXPERT_PLAN", "OMP_NUM_THREADS", "XDG_CACHE_HOME"} < variables
    missing = {name for name in variables if f"`{name}`" not in TEXT}
    assert not missing


def test_commands_are_named_on_one_side_or_the_other() -> None:
    from mixpert_py.cli import ALONE

    for name in ALONE:
        assert re.search(rf"`(mixpert )?{name}`", TEXT), name
