"""Files are written back with care, or not at all."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mixpert_py.errors import SourceError
from mixpert_py.files import require_place
from mixpert_py.sources import files_of_projects, write_back
from tests.every_check import EVERY_CHECK
from tests.mixpert_py.command import IMPORTABLE

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
