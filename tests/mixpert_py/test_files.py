"""Files are replaced in one step, or not at all."""

import os
import stat
from pathlib import Path

import pytest

from mixpert_py import files


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
