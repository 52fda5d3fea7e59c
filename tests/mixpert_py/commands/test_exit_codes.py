"""The table of exit codes in docs/commands.md, each cell of it by a command."""

import re
from pathlib import Path
from shutil import copytree

import click
import pytest

import mixpert_py
from mixpert_py.cli import cli
from mixpert_py.runtime.gpu import device
from tests.mixpert_py.command import ROOT, Mixpert, Said, forked

PRODUCT = "import numpy as np\na = np.eye(3)\nb = a @ a\n"
FILES = {
    "s.py": PRODUCT,
    "none.py": "x = 1\n",
    "open.py": "x = (\n",
    "fails.py": f"{PRODUCT}raise SystemExit(2)\n",
    "long.py": PRODUCT.replace("np.eye(3)", "np.eye(9, dtype=np.longdouble)"),
    "noisy.py": "import os\nimport numpy as np\na = np.frombuffer(os.urandom(9), np.uint8) / 99\n"
    "b = a.reshape(3, 3) @ np.eye(3)\n",
    "bad.toml": "site = 3\n",
}

# Every cell but those of `doctor`, which finds what is here.
COMMANDS: dict[tuple[str, int], tuple[str, ...]] = {
    ("rewrite", 0): ("none.py",),
    ("rewrite", 1): ("--check", "s.py"),
    ("rewrite", 2): ("--check", "s.py", "open.py"),
    ("sites", 0): ("s.py",),
    ("sites", 2): ("s.py", "open.py"),
    ("graph", 0): ("s.py",),
    ("graph", 2): ("s.py", "open.py"),
    ("run", 0): ("s.py",),
    ("run", 1): ("--strict", "--scheme", "float32", "long.py"),
    ("run", 2): ("nowhere.py",),
    ("estimate", 0): ("--time-limit", "30", "s.py"),
    ("estimate", 1): ("none.py",),
    ("estimate", 2): ("fails.py",),
    ("tune", 0): ("--error", "1", "--backend", "reference", "s.py"),
    ("tune", 1): ("--error", "1e-9", "noisy.py"),
    ("tune", 2): ("--error", "1", "fails.py"),
    ("verify", 0): ("s.mixpert.toml", "s.py"),
    ("verify", 1): ("s.mixpert.toml", "none.py"),
    ("verify", 2): ("s.mixpert.toml", "fails.py"),
    ("report", 0): ("s.mixpert.toml",),
    ("report", 2): ("other.toml",),
    ("plan show", 0): ("s.mixpert.toml",),
    ("plan show", 2): ("bad.toml",),
    ("plan validate", 0): ("s.mixpert.toml",),
    ("plan validate", 2): ("bad.toml",),
    ("probe", 2): (),
}
OF_GPU = {("probe", 2)}  # where there is one they go on


def table() -> dict[str, tuple[str, ...]]:
    """Command → what 0, 1 and 2 mean of it."""
    text = (ROOT / "docs" / "commands.md").read_text("utf-8").partition("## Exit codes")[2]
    rows = re.findall(r"^\| `([a-z ]+)` \| (.*) \|$", text.partition("\n## ")[0], re.M)
    return {name: tuple(cells.split(" | ")) for name, cells in rows}


def test_every_command_has_a_row_and_every_cell_a_test() -> None:
    names = set()
    for name in cli.commands:
        command = cli.get_command(click.Context(cli), name)
        one_row = not isinstance(command, click.Group)
        names |= {name} if one_row else {f"{name} {further}" for further in command.commands}
    assert table().keys() == names
    cells = {(name, code) for name, row in table().items() for code in range(3) if row[code] != "–"}
    done = {("doctor", 0), ("doctor", 2), ("probe", 0)}  # the last one needs a GPU
    assert cells == {*COMMANDS, *done}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with s.py, its plan and its record: one tuning for all cells."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "s.py").write_text(PRODUCT)
    words = "tune", "--error", "1", "--backend", "reference", "s.py"
    said = forked("mixpert_py", *words, folder=folder)
    assert said.code == 0, said
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(("name", "code"), COMMANDS, ids=lambda value: str(value))
def test_a_cell(folder: Path, tuned: Path, mixpert: Mixpert, name: str, code: int) -> None:
    if (name, code) in OF_GPU and device.may_be_here():
        pytest.skip("there may be a GPU")
    words = COMMANDS[name, code]
    if "s_mixpert.py" in words:
        assert mixpert("rewrite", "s.py").code == 0
    if {"s.mixpert.toml", "other.toml"} & {*words}:
        copytree(tuned, folder, dirs_exist_ok=True)
        plan = (folder / "s.mixpert.toml").read_text()
        (folder / "other.toml").write_text(plan.replace('"int8x1"', '"int8x3"'))
    said = mixpert(*name.split(), *words)
    assert said.code == code, said
    assert "Traceback" not in said.err


def test_doctors_code_is_what_it_found(mixpert: Mixpert) -> None:
    said = mixpert("doctor")
    missing = any(line.rstrip().endswith("missing") for line in said.out.splitlines())
    assert said.code == (2 if missing else 0)


@pytest.mark.parametrize("name", table())
def test_two_is_wrong_usage_of_every_command(mixpert: Mixpert, name: str) -> None:
    said = mixpert(*name.split(), "--no-such-option")
    assert said.code == 2
    assert "No such option" in said.err


def test_a_help_is_no_failure(mixpert: Mixpert) -> None:
    for name in table():
        assert mixpert(*name.split(), "--help").code == 0, name
    assert mixpert("--version") == Said(0, f"mixpert, version {mixpert_py.__version__}\n", "")
