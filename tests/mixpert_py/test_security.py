"""What docs/limits.md says of security, where that can be seen cheaply."""

import ast
import re
import shutil
from functools import cache
from pathlib import Path

import pytest

from tests.mixpert_py.command import ROOT, forked
from tests.mixpert_py.test_nothing_runs import CANARY, shadow, watched

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
COMMANDS = {
    "report m.mixpert.toml --html page": 2,  # there are no trials
    "doctor": 0,
    "probe --only clock": 2,  # there is no GPU
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shadow(tmp_path)
    (tmp_path / "m.mixpert.toml").write_text(PLAN)
    return tmp_path


def test_commands_that_look_at_plans_and_machines_run_nothing(project: Path) -> None:
    ran, left = watched(project, *COMMANDS, CUDA_VISIBLE_DEVICES="")
    assert not [line for line in ran if "canary" in line or str(project) in line]
    assert not (project / "canary").exists()
    for command, said in zip(COMMANDS, left, strict=True):
        assert "Traceback" not in said.err
        assert said.code == COMMANDS[command], said


def test_a_report_runs_nothing_of_the_program(project: Path) -> None:
    """Of one that has been tuned before it became what it is."""
    script = project / "m.py"
    script.write_text("import numpy as np\na = np.eye(30)\nb = a @ a\nc = np.dot(b, a)\n")
    (project / "m.mixpert.toml").unlink()
    empty = project / "empty"
    empty.mkdir()
    shutil.copy(script, empty)
    tune = "tune", "m.py", "--error", "1e-3", "--backend", "reference", "-o", "m.mixpert.toml"
    said = forked("mixpert_py", *tune, folder=empty)
    assert said.code == 0, said
    for path in empty.glob("m.mixpert.*"):
        shutil.copy(path, project)
    script.write_text(f"import canary_module\n{CANARY}{script.read_text()}")
    ran, (said,) = watched(project, "report m.mixpert.toml --html page")
    assert said.code == 0, said
    assert (project / "page" / "index.html").exists()
    assert not ran
    assert not (project / "canary").exists()


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
