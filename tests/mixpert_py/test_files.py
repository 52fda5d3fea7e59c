"""Files are replaced in one step, or not at all; what killed processes leave is removed."""

import errno
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mixpert_py import files
from tests.mixpert_py.command import IMPORTABLE


@pytest.fixture(autouse=True)
def _as_in_a_new_process() -> Iterator[None]:
    """Nothing has been removed in this process yet."""
    files.remove_abandoned.cache_clear()
    yield
    files.remove_abandoned.cache_clear()


def test_content_and_mode(tmp_path: Path) -> None:
    path = tmp_path / "f"
    files.replace(path, b"one")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"one", 0o644)
    path.chmod(0o600)
    files.replace(path, b"two")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"two", 0o600)
    files.replace(path, b"three", 0o755)
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize("place", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_a_stream_is_written_to_where_it_is_a_file(place: str) -> None:
    assert files.is_stream(Path(place))


KILLED = """
import os, signal, sys
from pathlib import Path
from mixpert_py import files
os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)
files.replace(Path(sys.argv[1]), b"new")
"""
KILLED_IN_A_RUN = """
import os, signal
from mixpert_py import files
with files.temporary_folder():
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(*command: str) -> None:
    done = subprocess.run([sys.executable, "-c", *command], stdout=subprocess.DEVNULL)
    assert done.returncode == -signal.SIGKILL


def made_old(folder: Path) -> list[Path]:
    """All that is in a folder, as if it had been made an hour ago."""
    found = list(folder.iterdir())
    for path in found:
        os.utime(path, (path.stat().st_mtime - 3600,) * 2)
    return found


def test_what_a_killed_process_left_beside_a_file_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "f.py"
    path.write_bytes(b"old")
    killed(KILLED, str(path))
    assert len(os.listdir(tmp_path)) == 2
    assert path.read_bytes() == b"old"
    made_old(tmp_path)
    files.replace(tmp_path / "g.py", b"")
    assert sorted(os.listdir(tmp_path)) == ["f.py", "g.py"]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary folder, for this process and its children."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_what_a_killed_run_left_is_removed(temporary: Path) -> None:
    killed(KILLED_IN_A_RUN)
    (left,) = made_old(temporary)
    (left / "work").mkdir()
    (left / "work" / "value.npy").touch()
    made_old(temporary)
    with files.temporary_folder() as folder:
        assert list(temporary.iterdir()) == [Path(folder)]
    assert list(temporary.iterdir()) == []


def test_what_a_live_child_of_a_killed_run_uses_is_left(temporary: Path) -> None:
    with files.temporary_folder() as folder:
        child = "import sys; from mixpert_py.files import hold; hold(sys.argv[1]); print(); input()"
        command = [sys.executable, "-c", child, folder]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as living:
            assert living.stdout is not None
            living.stdout.readline()
            moved = Path(folder).rename(temporary / f"{files.RUN_PREFIX}of-a-killed-one")
            made_old(temporary)
            files.remove_abandoned(str(temporary), files.RUN_PREFIX)
            assert moved.is_dir()
            living.communicate(b"\n")


@contextmanager
def held(path: Path) -> Iterator[None]:
    descriptor = files.hold(path)
    yield
    os.close(descriptor)


def test_only_what_is_old_and_nobody_holds_is_removed(tmp_path: Path) -> None:
    names = ["gone", "held", "folder"]
    for name in names:
        path = tmp_path / f"{files.NEW_PREFIX}{name}"
        path.mkdir() if name == "folder" else path.touch()
    (tmp_path / ".mixpert-newer").touch()
    os.mkfifo(tmp_path / f"{files.NEW_PREFIX}pipe")
    made_old(tmp_path)
    (tmp_path / f"{files.NEW_PREFIX}young").touch()
    (tmp_path / f"{files.NEW_PREFIX}link").symlink_to(tmp_path / ".mixpert-newer")
    with held(tmp_path / f"{files.NEW_PREFIX}held"):
        files.remove_abandoned(str(tmp_path), files.NEW_PREFIX)
    left = {name.removeprefix(files.NEW_PREFIX) for name in os.listdir(tmp_path)}
    assert left == {"held", "young", "link", "pipe", ".mixpert-newer"}


def test_what_another_user_left_is_left(tmp_path: Path) -> None:
    path = tmp_path / f"{files.NEW_PREFIX}x"
    path.touch()
    try:
        os.chown(path, os.getuid() + 1, -1)
    except PermissionError:
        pytest.skip("only root gives files away")
    made_old(tmp_path)
    files.remove_abandoned(str(tmp_path), files.NEW_PREFIX)
    assert path.exists()


WAY_OUT = "No space left on device for what runs leave; let TMPDIR name another folder"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named_with_the_way_out(number: int) -> None:
    with pytest.raises(OSError, match=WAY_OUT) as raised, files.temporary_folder() as folder:
        raise OSError(number, os.strerror(number))
    assert raised.value.filename == tempfile.gettempdir()
    assert not os.path.exists(folder)


def test_other_errors_pass_a_temporary_folder() -> None:
    with pytest.raises(PermissionError, match="another error"), files.temporary_folder():
        raise PermissionError(errno.EACCES, "another error")


WORKS = """
import sys
from pathlib import Path
from mixpert_py import files
with files.working_on(Path(sys.argv[1])) as is_alone:
    print(is_alone, flush=True)
    input()
"""


def test_who_works_on_a_file_is_seen(tmp_path: Path) -> None:
    def begin(name: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", WORKS, str(tmp_path / name)]
        pipe = subprocess.PIPE
        environment = {**os.environ, "PYTHONPATH": IMPORTABLE, "TMPDIR": str(tmp_path)}
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)

    def is_alone(process: "subprocess.Popen[str]") -> bool:
        assert process.stdout is not None
        return process.stdout.readline() == "True\n"

    (tmp_path / "link").symlink_to("plan")
    first, other = begin("plan"), begin("other")
    assert is_alone(first)
    assert is_alone(other)
    second = begin("link")
    assert not is_alone(second)
    first.communicate("\n", timeout=60)
    third = begin("plan")
    assert not is_alone(third)  # the second is there still
    second.kill()
    second.communicate(timeout=60)
    third.communicate("\n", timeout=60)
    other.communicate("\n", timeout=60)
    assert os.listdir(tmp_path) == ["link"]
