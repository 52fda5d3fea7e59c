"""The files of projects, their settings, and comments at products."""

import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mixpert_py import sources
from mixpert_py.errors import SourceError
from mixpert_py.files import require_place
from mixpert_py.sources import (
    ProjectSettings,
    files_of_projects,
    in_memory,
    packages,
    settings,
    write_back,
)
from tests.every_check import EVERY_CHECK
from tests.mixpert_py.command import IMPORTABLE, Mixpert

OLD, NEW = b"a @ b\r\n", b"rewritten\r\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "project" / "net.py"
    path.parent.mkdir()
    path.write_bytes(OLD)
    return path


def refused(file: Path, words: str) -> None:
    """No byte of the file, no name beside it is touched."""
    before = file.read_bytes()
    names = sorted(os.listdir(file.parent))
    with pytest.raises(SourceError) as raised:
        write_back(str(file), OLD, NEW)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    assert file.read_bytes() == before
    assert sorted(os.listdir(file.parent)) == names


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root gives files")
def test_the_owner(file: Path) -> None:
    os.chown(file, 1234, 5678)
    os.chmod(file, 0o4755)
    write_back(str(file), OLD, NEW)
    now = os.stat(file)
    assert (now.st_uid, now.st_gid, stat.S_IMODE(now.st_mode)) == (1234, 5678, 0o4755)


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root gives files")
@pytest.mark.parametrize(("user", "group"), [(1234, 5678), (4321, 1234)])
def test_an_owner_that_cannot_be_kept(user: int, group: int) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = Path(folder, "net.py")
        path.write_bytes(OLD)
        os.chown(path, user, group)
        os.chmod(path, 0o666)
        os.chmod(folder, 0o777)
        os.setegid(1234)
        os.seteuid(1234)
        try:
            refused(path, "cannot write: operation not permitted")
            with pytest.raises(PermissionError):  # known before a tuning of hours
                require_place(path)
        finally:
            os.seteuid(0)
            os.setegid(0)


def test_a_file_that_changed_meanwhile(file: Path) -> None:
    file.write_bytes(OLD + b"# new\n")
    refused(file, "changed while")


def test_a_file_that_is_gone(file: Path) -> None:
    os.unlink(file)
    with pytest.raises(SourceError, match="no such file"):
        write_back(str(file), OLD, NEW)
    assert os.listdir(file.parent) == []


def test_plain_files_of_a_folder_are_listed(file: Path, tmp_path: Path) -> None:
    root = tmp_path / "project"
    (root / "link.py").symlink_to("net.py")
    (root / "notes.txt").write_text("")
    (root / "nowhere.py").symlink_to("nothing.py")
    os.mkfifo(root / "pipe.py")
    assert list(files_of_projects([str(root)], [])) == [str(file)]
    assert list(files_of_projects([str(root / "link.py")], [])) == [str(root / "link.py")]


def test_a_link_stays_one(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.py"
    link.symlink_to(file)
    write_back(str(link), OLD, NEW)
    assert (link.is_symlink(), file.read_bytes()) == (True, NEW)


KILLED = """
import os, signal, sys
from mixpert_py.sources import write_back

path, old, new, step = sys.argv[1], *map(bytes.fromhex, sys.argv[2:4]), int(sys.argv[4])

def die_at(last):
    count = 0
    def count_down(frame, event, argument):
        nonlocal count
        count += 1
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)
    return count_down

seen = []
at = 0
while True:
    at += step
    with open(path, "wb") as file:
        file.write(old)
    child = os.fork()
    if child == 0:
        sys.setprofile(die_at(at))
        write_back(path, old, new)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    with open(path, "rb") as file:
        seen.append(file.read())
    if not os.WIFSIGNALED(status):
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
assert seen[-1] == new
assert set(seen) == {old, new}
print(at)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_any_step_the_old_file_or_the_new_one_is_there(file: Path) -> None:
    """Before and after calls that Python makes on the way, system calls among them."""
    step = "1" if EVERY_CHECK else "3"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(file), (OLD * 5_000).hex(), (NEW * 5_000).hex(), step],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": IMPORTABLE},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def test_the_project_is_where_pyproject_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "home" / "work" / "src" / "scripts"
    inner.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert sources.folder_of(str(inner)) == str(inner)
    for folder in ("home", "home/work"):
        (tmp_path / folder / "pyproject.toml").touch()
    assert sources.folder_of(str(inner)) == str(tmp_path / "home" / "work")
    (tmp_path / "home" / "work" / "pyproject.toml").unlink()
    assert sources.folder_of(str(inner)) == str(inner)  # that of a home is nobody's
    os.symlink(inner, tmp_path / "link")
    assert sources.folder_of(str(tmp_path / "link")) == str(inner)


FILES = {
    "s.py": True,
    "pkg/near.py": True,
    "src/pkg/near.py": True,
    ".venv/lib/near.py": False,
    "venv/near.py": False,
    "env/lib/python3.11/site-packages/near.py": False,
    "pkg/.hidden/near.py": False,
    "../near.py": False,
    "/elsewhere/near.py": False,
}


@pytest.mark.parametrize(("written", "own"), FILES.items(), ids=FILES)
def test_what_is_installed_in_it_is_not_its_own(written: str, own: bool) -> None:
    folder = os.path.join(os.sep, "site-packages", "project")
    assert sources.is_in(os.path.normpath(os.path.join(folder, written)), folder) is own
    assert not sources.is_in(f"{folder}s/near.py", folder)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "pyproject.toml"


def test_what_is_ours_is_read(written: Path) -> None:
    assert settings(str(written.parent)) == ProjectSettings()
    assert packages(str(written.parent)) == ()
    written.write_text("[tool.mixpert]\nexclude = ['a']\npackages = ['b']\n", "utf-8-sig")
    assert settings(str(written.parent)) == ProjectSettings(exclude=["a"], packages=["b"])
    assert packages(str(written.parent)) == ("b",)


WRONG = {
    "no text": b"[tool.mixpert]\npackages = '\xff'",
    "a long name": b"[tool.mixpert]\npackages" + b"x" * 5000 + b" = 1",
    "too large": b"[tool.mixpert]\npackages = 1\n" + b"#" * (1 << 20),
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said_in_one_line(written: Path, content: bytes) -> None:
    written.write_bytes(content)
    for read in (settings, packages):
        with pytest.raises(SourceError) as caught:
            read(str(written.parent))
        assert str(caught.value).startswith(f"{written}: ")
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 500
        assert not {"set_int_max_str_digits", "attribute"} & set(str(caught.value).split())


def test_no_more_is_read_than_is_needed(written: Path) -> None:
    written.write_text("[tool.mixpert]\npackages = 7\n")
    os.truncate(written, 1 << 40)
    with pytest.raises(SourceError, match=r"larger than 1 MiB$"):
        settings(str(written.parent))


MISSPELT = [
    ("scheme", "# mixpert: scheme=foo", "unknown scheme 'foo'; known: "),
    ("word", "# mixpert: nonsense", "'# mixpert: nonsense' is not known: wanted `# mixpert: off`"),
    ("case", "# Mixpert: Off", "'# Mixpert: Off' is not known"),
]
_, COMMENT, SAID = MISSPELT[0]


@pytest.mark.parametrize("command", ["rewrite", "rewrite --check", "sites"])
def test_a_file_is_skipped(tmp_path: Path, mixpert: Mixpert, command: str) -> None:
    (tmp_path / "net.py").write_text(f"x = 1\nc = a @ b  {COMMENT}\n")
    told = mixpert(*command.split(), "net.py")
    assert told.code == 2
    assert told.one_clear_line().startswith(f"mixpert: net.py: line 2: {SAID}")
    assert list(tmp_path.iterdir()) == [tmp_path / "net.py"]


def test_a_notebook_names_the_cell(tmp_path: Path, mixpert: Mixpert) -> None:
    cells = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": source}
        for source in ("x = 1", f"y = 1\nc = a @ b  {COMMENT}")
    ]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "nb.ipynb").write_text(json.dumps(notebook))
    told = mixpert("rewrite", "nb.ipynb")
    assert told.code == 2
    assert told.one_clear_line().startswith(f"mixpert: nb.ipynb: cell 2: line 2: {SAID}")


@pytest.mark.parametrize(("comment", "said"), [pytest.param(c, s, id=i) for i, c, s in MISSPELT])
def test_in_memory(comment: str, said: str) -> None:
    with pytest.raises(SourceError) as raised:
        in_memory.rewritten(f"c = a @ b  {comment}\n".encode(), "m", "<string>")
    assert str(raised.value).startswith(f"m: line 1: {said}")


def test_a_program_with_such_a_comment_runs_as_it_is(tmp_path: Path, mixpert: Mixpert) -> None:
    text = "import numpy as np\nprint(np.eye(2) @ np.eye(2))  # mixpert: scheme=foo\n"
    (tmp_path / "net.py").write_text(text)
    told = mixpert("run", "net.py")
    assert (told.code, told.out) == (0, "[[1. 0.]\n [0. 1.]]\n")
    assert "net.py:1: UserWarning: mixpert: line 2: unknown scheme 'foo'" in told.err
