"""`mixpert rewrite` and `mixpert sites`: what they write, and what they never do."""

import os
import stat
from pathlib import Path

import pytest

from tests.mixpert_py.command import Mixpert, Shell

SOURCE = '''\
#!/usr/bin/env python3
"""Three products."""
from __future__ import annotations

import numpy as np


def forward(x, w):
    return np.tanh(x @ w)


x = np.ones((4, 3))
print(forward(x, np.eye(3)).sum(), np.dot(x.T, x)[0, 0], x.dot(np.ones(3)).tolist())
'''
# A tree of files that change, stay, are left by a comment, and cannot be read.
TREE = {
    "a.py": "c = a @ b\nd = a @ c\n",
    "broken.py": "x = (1 @\n",
    "sub/b.py": "c = a @ b  # mixpert: off\nd = a @ c\n",
    "sub/left.py": "c = a @ b\n# mixpert: off-file\n",
    "sub/plain.py": "x = 1\n",
}
LEFT = "; 2 products left alone, see `mixpert sites`\n"


@pytest.fixture
def script(sh: Shell) -> Path:
    path = sh.write({"net.py": SOURCE}) / "net.py"
    path.chmod(0o755)
    return path


def rewritten(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*.py") if "_mixpert" in path.read_text()}


def test_the_result_goes_beside_the_script(script: Path, sh: Shell) -> None:
    sh("rewrite net.py", out="net_mixpert.py: 3 products rewritten\n")
    target = script.with_name("net_mixpert.py")
    assert script.read_text() == SOURCE
    assert stat.S_IMODE(target.stat().st_mode) == 0o755
    assert sh("run net.py").out == sh(f"run {target}").out
    lines = target.read_text().splitlines()
    assert lines[:2] == SOURCE.splitlines()[:2]
    assert lines[4].startswith("import mixpert_py as _mixpert")
    assert len(lines) == SOURCE.count("\n") + 1


def test_it_overwrites_its_own_result_and_nothing_else(script: Path, sh: Shell) -> None:
    sh.write({"net_mixpert.py": "precious = 1\n"})
    for line in ("rewrite net.py", "rewrite net.py -o net_mixpert.py"):
        said = sh(line, 2, err="net_mixpert.py: exists and differs from what")
        assert said.one_clear_line()
    assert sh.read("net_mixpert.py") == "precious = 1\n"
    script.with_name("net_mixpert.py").unlink()
    sh("rewrite net.py")
    sh.write({"net.py": SOURCE.replace("np.dot(x.T, x)", "np.dot(x.T, 2 * x)")})
    sh("rewrite net.py")
    assert "2 * x" in sh.read("net_mixpert.py")


def test_in_place_keeps_mode_and_links(script: Path, sh: Shell) -> None:
    link = script.with_name("link.py")
    link.symlink_to(script)
    sh("rewrite -w link.py")
    assert link.is_symlink()
    assert "_mixpert.matmul" in script.read_text()
    assert stat.S_IMODE(script.stat().st_mode) == 0o755
    assert sorted(os.listdir(sh.folder)) == ["link.py", "net.py"]


def test_standard_input(sh: Shell) -> None:
    product = "c = a @ b\n"
    said = sh("rewrite -", out='_mixpert.matmul(a, b, site="stdin:<module>/matmul~', stdin=product)
    assert said.out.startswith("import mixpert_py as _mixpert")
    sh("rewrite -", out="x = 1\n", stdin="x = 1\n")
    sh("rewrite - -o out.py", stdin=product)
    assert "_mixpert.matmul" in sh.read("out.py")
    sh("rewrite - -w", 2, stdin=product)


def test_diff_and_check_write_nothing(script: Path, sh: Shell) -> None:
    lines = sh("rewrite --diff net.py").out.splitlines()
    changed = [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert len(changed) == 1 + 2 * 2
    sh("rewrite --check net.py", 1)
    sh("rewrite --check --diff net.py", 1)
    assert os.listdir(sh.folder) == ["net.py"]


@pytest.mark.usefixtures("script")
def test_scheme_and_plan_are_written_into_the_calls(sh: Shell) -> None:
    assert sh("rewrite --scheme float32 -o - net.py").out.count('scheme="float32"') == 3
    site = sh.json("sites --json net.py")[1]["id"]
    sh.write({"p.toml": f'[[site]]\nid = "{site}"\nscheme = "int8x6"\n'})
    said = sh("rewrite --plan p.toml -o - net.py", out=f'site="{site}", scheme="int8x6"')
    assert said.out.count("scheme=") == 1


def test_folders(sh: Shell) -> None:
    names = "a.py", "pkg/b.py", "pkg/skip_me.py", ".hidden/c.py", "pkg/notes.txt"
    sh.write(dict.fromkeys(names, "def f(x, y):\n    return x @ y\n"))
    sh.write({"broken.py": "x = (1 @\n"})
    sh("rewrite .", 2)
    said = sh("rewrite -w --exclude skip_*.py .", 2, err="broken.py: line 1")
    assert said.one_clear_line()
    assert rewritten(sh.folder) == {"a.py", "b.py"}


def test_json_lists_what_was_found(sh: Shell) -> None:
    sh.write({"net.py": SOURCE + "y = np.vdot(x, x)\n"})
    records = sh.json("sites --json net.py")
    keys = {"id", "path", "line", "column", "kind", "expression", "rewritten", "reason"}
    assert all(record.keys() == keys for record in records)
    assert [record["line"] for record in records] == [9, 13, 13, 14]
    assert [bool(record["reason"]) for record in records] == [False, False, False, True]
    assert [record["rewritten"] for record in records] == [True, True, True, False]
    sh("sites net.py", out="3 rewritten, 1 left alone")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("print(1)\n", ""),
        ("c = a @ b, a @ c  # mixpert: off\r\n", f" ({LEFT[2:-1]})"),
    ],
    ids=["none", "left alone"],
)
def test_an_output_is_written_where_nothing_changes(
    script: Path, sh: Shell, text: str, said: str
) -> None:
    said = f"no matrix product to rewrite{said}"
    script.write_bytes(text.encode())
    sh("rewrite net.py", out=f"net.py: {said}\n")
    assert os.listdir(sh.folder) == ["net.py"]
    sh("rewrite net.py -o out.py", out=f"out.py: {said}; written as it is\n")
    out = script.with_name("out.py")
    assert out.read_bytes() == text.encode()
    assert stat.S_IMODE(out.stat().st_mode) == 0o755
    sh("rewrite net.py -o out.py")
    out.write_text("precious = 1\n")
    sh("rewrite net.py -o out.py", 2, err="out.py: exists and differs")


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="needs /dev/stdout")
def test_a_device_is_written_to_and_not_replaced(script: Path, new_mixpert: Mixpert) -> None:
    said = new_mixpert("rewrite", "net.py", "-o", "/dev/stdout")
    assert (said.code, "_mixpert.matmul" in said.out) == (0, True)
    assert Path("/dev/stdout").is_symlink()
    assert os.listdir(script.parent) == ["net.py"]


def test_a_tree_is_checked(sh: Shell) -> None:
    sh.write(TREE)
    check = "rewrite --check"
    said = sh(
        f"{check} .",
        2,
        out="./a.py: would be rewritten\n./sub/b.py: would be rewritten\n"
        f"2 files would be rewritten (3 products), 2 stay as they are, 1 skipped{LEFT}",
    )
    assert said.one_clear_line().startswith("mixpert: ./broken.py: line 1")
    told = f"1 file would be rewritten (1 product), 2 stay as they are{LEFT}"
    sh(f"{check} sub", 1, out=f"sub/b.py: would be rewritten\n{told}", err="")
    told = f"0 files would be rewritten, 2 stay as they are{LEFT}".replace(
        "2 products", "1 product"
    )
    sh(f"{check} sub/left.py sub/plain.py", out=told)


def test_a_trees_diff_is_a_patch(sh: Shell) -> None:
    sh.write({name: text for name, text in TREE.items() if name != "broken.py"})
    told = f"2 files would be rewritten (3 products), 2 stay as they are{LEFT}"
    lines = sh("rewrite --diff .", err=told).out.splitlines()
    assert [it for it in lines if it[:3] == "+++"] == ["+++ b/./a.py", "+++ b/./sub/b.py"]
    sh("rewrite --diff --check .", 1)


def test_whole_lines_in_a_pipe(sh: Shell) -> None:
    operand = "+ ".join(["a_rather_long_name"] * 20)
    text = f"if x:\n    c = f(b, ({operand})\n       @ b)  # mixpert: off\n"
    sh.write({"net.py": text})
    line = f"net.py:2:14: ({operand}) @ b — `# mixpert: off`"
    sh("sites net.py", out=f"{line}\n0 rewritten, 1 left alone\n")


def test_what_the_project_excludes(sh: Shell) -> None:
    sh.write(TREE)
    sh.write({"pyproject.toml": '[tool.mixpert]\nexclude = ["broken.py", "sub/l*"]\n'})
    told = "2 files would be rewritten (3 products), 1 stays as it is; 1 product left alone, see"
    sh("rewrite --check .", 1, out=told, err="")
    assert sh("rewrite --check sub", 1).out.count("\n") == 2
    sh("rewrite --check broken.py", 2)
    assert len(sh.json("sites --json .")) == 4
    assert len(sh.json("sites --exclude sub/* --json .")) == 2
    for text, words in (
        ("[tool.mixpert\n", "pyproject.toml: "),
        ("[tool.mixpert]\nexclude = 1\n", "key 'tool.mixpert.exclude': Expected"),
        ("[tool]\nmixpert = 1\n", "key 'tool.mixpert': Expected"),
        ('tool = "x"\n', "key 'tool': Expected"),
        ("[tool.mixpert]\nexcludes = []\n", "key 'tool.mixpert.excludes': unknown key"),
    ):
        sh.write({"pyproject.toml": text})
        assert words in sh("rewrite --check .", 2).one_clear_line()
