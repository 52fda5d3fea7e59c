"""The smaller commands, and what all commands have in common."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mixpert_py.command import IMPORTABLE, Mixpert

PLANS = [
    ("an unknown scheme", '[[site]]\nid = "m:f/matmul~1#0"\nscheme = "int9"\n', "p.toml:3: key"),
    ("nesting", "a = " + "[" * 500_000, "p.toml"),
]


@pytest.mark.parametrize(("text", "word"), [row[1:] for row in PLANS], ids=[r[0] for r in PLANS])
def test_a_malformed_plan_touches_nothing(
    tmp_path: Path, mixpert: Mixpert, text: str, word: str
) -> None:
    (tmp_path / "p.toml").write_text(text)
    (tmp_path / "s.py").write_text("import numpy as np\nx = np.eye(2) @ np.eye(2)\nprint('ran')\n")
    calls = (
        ["plan", "validate", "p.toml"],
        ["plan", "show", "p.toml"],
        ["run", "--plan", "p.toml", "s.py"],
        ["rewrite", "--plan", "p.toml", "s.py"],
        ["tune", "--error", "1", "-o", "p.toml", "s.py"],
    )
    for call in calls:
        said = mixpert(*call)
        assert said.code == 2
        assert word in said.one_clear_line()
        assert said.out == ""
    assert (tmp_path / "p.toml").read_text() == text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.toml", "s.py"]


def test_an_internal_error_is_one_line(mixpert: Mixpert, tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").write_text("raise RuntimeError('broken installation')\n")
    broken = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{IMPORTABLE}"}
    said = mixpert("plan", "show", "p.toml", **broken)
    assert said.code == 2
    assert said.one_clear_line().startswith("mixpert: internal error: RuntimeError")
    assert "Traceback" in mixpert("plan", "show", "p.toml", MIXPERT_DEBUG="1", **broken).err


def shell(text: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    mixpert = f"{sys.executable} -m mixpert_py"
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {text.replace('mixpert', mixpert)}"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": IMPORTABLE, **environment},
        timeout=60,
    )


needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="pipes need a shell")


@needs_bash
@pytest.mark.parametrize("command", ["rewrite --diff many.py"])
def test_a_reader_who_has_seen_enough_is_no_error(tmp_path: Path, command: str) -> None:
    (tmp_path / "many.py").write_text("def f(a, b):\n" + "    a @ b\n" * 1200)
    said = shell(f"mixpert {command} | head -1", tmp_path)
    assert (said.returncode, said.stderr) == (0, "")


@needs_bash
def test_a_full_disk_or_closed_output_is_one_line_at_most(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("a @ b\n")
    if Path("/dev/full").exists():
        said = shell("mixpert sites s.py > /dev/full", tmp_path)
        assert (said.returncode, said.stderr) == (2, "mixpert: No space left on device\n")
    said = shell("mixpert rewrite --check s.py >&-", tmp_path)
    assert (said.returncode, said.stderr) == (1, "")


@needs_bash
def test_a_program_with_its_output_closed_is_as_natively(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(
        "import sys\nopen('o', 'a').write(f'{sys.stdout}\\n')\nprint(1)\n"
    )
    for command in ("python s.py >&-", "mixpert run s.py >&-"):
        assert shell(command, tmp_path).returncode == 0
    assert (tmp_path / "o").read_text() == "None\nNone\n"


@needs_bash
def test_a_terminal_that_cannot_show_a_character_gets_an_escape(tmp_path: Path) -> None:
    for command in ("sites s.py",):
        (tmp_path / "s.py").write_text("x = π @ b\n")
        said = shell(f"mixpert {command}", tmp_path, PYTHONIOENCODING="ascii")
        assert (said.returncode, said.stderr) == (0, "")
