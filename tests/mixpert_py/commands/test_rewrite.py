"""`mixpert rewrite` and `mixpert sites`: what they write, and what they never do."""

import json
import os
import stat
from pathlib import Path

import pytest

from tests.mixpert_py.command import Mixpert

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


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(SOURCE)
    path.chmod(0o755)
    return path


def test_the_result_goes_beside_the_script(script: Path, mixpert: Mixpert) -> None:
    said = mixpert("rewrite", "net.py")
    assert (said.code, said.out) == (0, "net_mixpert.py: 3 products rewritten\n")
    target = script.with_name("net_mixpert.py")
    assert script.read_text() == SOURCE
    assert stat.S_IMODE(target.stat().st_mode) == 0o755
    assert mixpert("run", "net.py").out == mixpert("run", str(target)).out
    lines = target.read_text().splitlines()
    assert lines[:2] == SOURCE.splitlines()[:2]
    assert lines[4].startswith("import mixpert_py as _mixpert")
    assert len(lines) == SOURCE.count("\n") + 1


def test_it_overwrites_its_own_result_and_nothing_else(script: Path, mixpert: Mixpert) -> None:
    target = script.with_name("net_mixpert.py")
    target.write_text("precious = 1\n")
    said = mixpert("rewrite", "net.py")
    assert said.code == 2
    assert "net_mixpert.py: exists and differs from what" in said.one_clear_line()
    said = mixpert("rewrite", "net.py", "-o", "net_mixpert.py")
    assert said.code == 2
    assert target.read_text() == "precious = 1\n"
    target.unlink()
    assert mixpert("rewrite", "net.py").code == 0
    script.write_text(SOURCE.replace("np.dot(x.T, x)", "np.dot(x.T, 2 * x)"))
    assert mixpert("rewrite", "net.py").code == 0
    assert "2 * x" in target.read_text()


def test_in_place_keeps_mode_and_links(script: Path, mixpert: Mixpert) -> None:
    link = script.with_name("link.py")
    link.symlink_to(script)
    assert mixpert("rewrite", "-w", "link.py").code == 0
    assert link.is_symlink()
    assert "_mixpert.matmul" in script.read_text()
    assert stat.S_IMODE(script.stat().st_mode) == 0o755
    assert sorted(os.listdir(script.parent)) == ["link.py", "net.py"]


def test_standard_input_goes_to_standard_output(mixpert: Mixpert) -> None:
    said = mixpert("rewrite", "-", stdin="c = a @ b\n")
    assert said.code == 0
    assert said.out.splitlines()[0].startswith("import mixpert_py as _mixpert")
    assert '_mixpert.matmul(a, b, site="stdin:<module>/matmul~' in said.out
    assert mixpert("rewrite", "-", stdin="x = 1\n").out == "x = 1\n"


def test_diff_and_check_write_nothing(script: Path, mixpert: Mixpert) -> None:
    said = mixpert("rewrite", "--diff", "net.py")
    assert said.code == 0
    changed = [
        line for line in said.out.splitlines() if line[0] in "+-" and line[:3] not in ("+++", "---")
    ]
    assert len(changed) == 1 + 2 * 2
    assert mixpert("rewrite", "--check", "net.py").code == 1
    assert mixpert("rewrite", "--check", "--diff", "net.py").code == 1
    assert os.listdir(script.parent) == ["net.py"]
    script.write_text("x = 1\n")
    assert mixpert("rewrite", "--check", "net.py").code == 0


def test_scheme_and_plan_are_written_into_the_calls(script: Path, mixpert: Mixpert) -> None:
    said = mixpert("rewrite", "--scheme", "float32", "-o", "-", "net.py")
    assert said.out.count('scheme="float32"') == 3
    site = json.loads(mixpert("sites", "--json", "net.py").out)[1]["id"]
    (script.parent / "p.toml").write_text(f'[[site]]\nid = "{site}"\nscheme = "int8x6"\n')
    said = mixpert("rewrite", "--plan", "p.toml", "-o", "-", "net.py")
    assert said.out.count("scheme=") == 1
    assert f'site="{site}", scheme="int8x6"' in said.out


def test_folders(tmp_path: Path, mixpert: Mixpert) -> None:
    for name in ("a.py", "pkg/b.py", "pkg/skip_me.py", ".hidden/c.py", "pkg/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("def f(x, y):\n    return x @ y\n")
    (tmp_path / "broken.py").write_text("x = (1 @\n")
    assert mixpert("rewrite", ".").code == 2
    said = mixpert("rewrite", "-w", "-j", "2", "--exclude", "skip_*.py", ".")
    assert said.code == 2
    assert "broken.py: line 1" in said.one_clear_line()
    done = {path for path in tmp_path.rglob("*.py") if "_mixpert" in path.read_text()}
    assert done == {tmp_path / "a.py", tmp_path / "pkg" / "b.py"}


def test_json_lists_what_was_found(script: Path, mixpert: Mixpert) -> None:
    script.write_text(SOURCE + "y = np.vdot(x, x)\n")
    records = json.loads(mixpert("sites", "--json", "net.py").out)
    keys = {"id", "path", "line", "column", "kind", "expression", "rewritten", "reason"}
    assert all(record.keys() == keys for record in records)
    assert [record["line"] for record in records] == [9, 13, 13, 14]
    assert [record["rewritten"] for record in records] == [True, True, True, False]
    assert records[3]["reason"]
    (done,) = json.loads(mixpert("rewrite", "--json", "net.py").out)
    assert done["output"] == "net_mixpert.py"
    assert done["sites"] == records
    table = mixpert("sites", "net.py").out
    assert "3 rewritten, 1 left alone" in table


def test_conflicting_options_are_refused(script: Path, mixpert: Mixpert) -> None:
    for options in (["-w", "--diff"], ["-w", "-o", "x.py"], ["--check", "-o", "x.py"]):
        assert mixpert("rewrite", *options, "net.py").code == 2
    assert mixpert("rewrite", "-o", "x.py", "net.py", "net.py").code == 2
    assert os.listdir(script.parent) == ["net.py"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("print(1)\n", "no matrix product to rewrite"),
        (
            "c = a @ b, a @ c  # mixpert: off\r\n",
            "no matrix product to rewrite (2 products left alone, see `mixpert sites`)",
        ),
    ],
    ids=["none", "left alone"],
)
def test_an_output_is_written_where_nothing_changes(
    script: Path, mixpert: Mixpert, text: str, said: str
) -> None:
    script.write_bytes(text.encode())
    assert mixpert("rewrite", "net.py").out == f"net.py: {said}\n"
    assert os.listdir(script.parent) == ["net.py"]
    told = mixpert("rewrite", "net.py", "-o", "out.py")
    assert (told.code, told.out) == (0, f"out.py: {said}; written as it is\n")
    out = script.with_name("out.py")
    assert out.read_bytes() == text.encode()
    assert stat.S_IMODE(out.stat().st_mode) == 0o755
    assert mixpert("rewrite", "net.py", "-o", "out.py").code == 0
    out.write_text("precious = 1\n")
    again = mixpert("rewrite", "net.py", "-o", "out.py")
    assert again.code == 2
    assert "out.py: exists and differs" in again.one_clear_line()
    (record,) = json.loads(mixpert("rewrite", "net.py", "-o", "new.py", "--json").out)
    assert (record["output"], record["changed"]) == ("new.py", False)


def test_standard_input_to_a_file_or_json(tmp_path: Path, mixpert: Mixpert) -> None:
    assert mixpert("rewrite", "-", "-o", "out.py", stdin="c = a @ b\n").code == 0
    assert "_mixpert.matmul" in (tmp_path / "out.py").read_text()
    (record,) = json.loads(mixpert("rewrite", "-", "--json", stdin="c = a @ b\n").out)
    assert "_mixpert.matmul" in record["text"]
    assert mixpert("rewrite", "-", "-w", stdin="c = a @ b\n").code == 2


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="needs /dev/stdout")
def test_a_device_is_written_to_and_not_replaced(script: Path, new_mixpert: Mixpert) -> None:
    said = new_mixpert("rewrite", "net.py", "-o", "/dev/stdout")
    assert said.code == 0
    assert "_mixpert.matmul" in said.out
    assert Path("/dev/stdout").is_symlink()
    assert os.listdir(script.parent) == ["net.py"]


def test_links_are_told_and_the_run_goes_on(tmp_path: Path, mixpert: Mixpert) -> None:
    (tmp_path / "project").mkdir()
    for name in ("outside.py", "project/a.py", "project/b.py", "project/z.py"):
        (tmp_path / name).write_text("c = a @ b\n")
    (tmp_path / "project/link.py").symlink_to("../outside.py")
    os.link(tmp_path / "project/b.py", tmp_path / "b_too.py")
    said = mixpert("rewrite", "-w", "project")
    assert said.code == 2
    hard, soft = said.err.splitlines()
    assert hard.startswith("mixpert: project/b.py: has 2 names (hard links)")
    assert soft.startswith("mixpert: project/link.py: a link that leads out of project")
    done = {path.name for path in tmp_path.rglob("*.py") if "_mixpert" in path.read_text()}
    assert done == {"a.py", "z.py"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files that change, stay, are left by a comment, and cannot be read."""
    for name, text in (
        ("a.py", "c = a @ b\nd = a @ c\n"),
        ("broken.py", "x = (1 @\n"),
        ("sub/b.py", "c = a @ b  # mixpert: off\nd = a @ c\n"),
        ("sub/left.py", "c = a @ b\n# mixpert: off-file\n"),
        ("sub/plain.py", "x = 1\n"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_tree_is_checked(tree: Path, mixpert: Mixpert, jobs: str) -> None:
    said = mixpert("rewrite", "--check", "-j", jobs, ".")
    assert said.code == 2
    assert said.one_clear_line().startswith("mixpert: ./broken.py: line 1")
    assert said.out.splitlines() == [
        "./a.py: would be rewritten",
        "./sub/b.py: would be rewritten",
        "2 files would be rewritten (3 products), 2 stay as they are, 1 skipped; "
        "2 products left alone, see `mixpert sites`",
    ]
    said = mixpert("rewrite", "--check", "-j", jobs, "sub")
    assert (said.code, said.err) == (1, "")
    left = "; 2 products left alone, see `mixpert sites`\n"
    assert said.out.endswith(f"1 file would be rewritten (1 product), 2 stay as they are{left}")
    one = "; 1 product left alone, see `mixpert sites`\n"
    said = mixpert("rewrite", "--check", "-j", jobs, "sub/left.py", "sub/plain.py")
    assert (said.code, said.out) == (0, f"0 files would be rewritten, 2 stay as they are{one}")


def test_a_trees_diff_is_a_patch(tree: Path, mixpert: Mixpert) -> None:
    (tree / "broken.py").unlink()
    said = mixpert("rewrite", "--diff", ".")
    assert said.code == 0
    assert [line[4:] for line in said.out.splitlines() if line.startswith("+++")] == [
        "b/./a.py",
        "b/./sub/b.py",
    ]
    left = "; 2 products left alone, see `mixpert sites`\n"
    assert said.err == f"2 files would be rewritten (3 products), 2 stay as they are{left}"
    assert mixpert("rewrite", "--diff", "--check", ".").code == 1


def test_whole_lines_in_a_pipe(tmp_path: Path, mixpert: Mixpert) -> None:
    operand = "+ ".join(["a_rather_long_name"] * 20)
    (tmp_path / "net.py").write_text(
        f"if x:\n    c = f(b, ({operand})\n       @ b)  # mixpert: off\n"
    )
    line, total = mixpert("sites", "net.py").out.splitlines()
    assert line == f"net.py:2:14: ({operand}) @ b — `# mixpert: off`"
    assert total == "0 rewritten, 1 left alone"


def test_what_the_project_excludes(tree: Path, mixpert: Mixpert) -> None:
    project = tree / "pyproject.toml"
    project.write_text('[tool.mixpert]\nexclude = ["broken.py", "sub/l*"]\n')
    said = mixpert("rewrite", "--check", ".")
    assert (said.code, said.err) == (1, "")
    left = "1 product left alone, see `mixpert sites`"
    assert said.out.endswith(f"2 files would be rewritten (3 products), 1 stays as it is; {left}\n")
    assert mixpert("rewrite", "--check", "sub").out.count("\n") == 2
    assert mixpert("rewrite", "--check", "broken.py").code == 2
    assert len(json.loads(mixpert("sites", "--json", ".").out)) == 4
    assert mixpert("sites", "--exclude", "sub/*", "--json", ".").out.count('"id"') == 2
    for text, words in (
        ("[tool.mixpert\n", "pyproject.toml: "),
        ("[tool.mixpert]\nexclude = 1\n", "exclude is a list of globs"),
        ("[tool]\nmixpert = 1\n", "[tool.mixpert] has to be a table"),
        ('tool = "x"\n', "[tool] has to be a table"),
        ("[tool.mixpert]\nexcludes = []\n", "has no 'excludes'"),
    ):
        project.write_text(text)
        said = mixpert("rewrite", "--check", ".")
        assert said.code == 2
        assert words in said.one_clear_line()
