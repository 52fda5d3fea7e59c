"""Files are replaced in one step, or not at all."""

import errno
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mixpert_py import files
from tests.mixpert_py.command import IMPORTABLE


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
    second.communicate("\n", timeout=60)
    third = begin("plan")
    assert is_alone(third)
    third.communicate("\n", timeout=60)
    other.communicate("\n", timeout=60)
    assert os.listdir(tmp_path) == ["link"]
