"""Kept code: found again, and never taken from anybody else."""

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from mixpert_py.runtime.own_files import CodeCache


@pytest.fixture
def kept(tmp_path: Path) -> CodeCache:
    """A cache with one payload in it."""
    kept = CodeCache(tmp_path / "above" / "code")
    kept.keep(b"place", b"state", b"payload")
    return kept


def the_file(kept: CodeCache) -> Path:
    (file,) = kept.folder.iterdir()
    return file


def test_what_is_kept_is_found_again(kept: CodeCache) -> None:
    assert kept.load(b"place", b"state") == b"payload"
    assert kept.load(b"place", b"other") is None
    assert kept.load(b"other", b"state") is None
    assert kept.folder.stat().st_mode & 0o777 == 0o700
    assert the_file(kept).stat().st_mode & 0o777 == 0o600


def another_owner(kept: CodeCache) -> None:
    os.chown(the_file(kept), os.getuid() + 1, -1)


def link(kept: CodeCache) -> None:
    file = the_file(kept)
    os.symlink(file.rename(kept.folder.parent / "elsewhere"), file)


def link_to_the_folder(kept: CodeCache) -> None:
    os.symlink(kept.folder.rename(kept.folder.parent / "elsewhere"), kept.folder)


def folder_in_place(kept: CodeCache) -> None:
    the_file(kept).unlink()
    (kept.folder / CodeCache(kept.folder)._file(b"place").name).mkdir()


def pipe_in_place(kept: CodeCache) -> None:
    the_file(kept).unlink()
    os.mkfifo(kept._file(b"place"), 0o600)


def pipe_in_place_of_the_folder(kept: CodeCache) -> None:
    kept.folder.rename(kept.folder.parent / "elsewhere")
    os.mkfifo(kept.folder, 0o700)


def dangling_link(kept: CodeCache) -> None:
    the_file(kept).unlink()
    os.symlink("nowhere", kept._file(b"place"))


def from_another_place(kept: CodeCache) -> None:
    kept.keep(b"other", b"state", b"planted")
    os.replace(kept._file(b"other"), kept._file(b"place"))


def link_above(kept: CodeCache) -> None:
    """A folder above is a link to one that everybody may write to."""
    above = kept.folder.parent
    theirs = above.rename(above.parent / "theirs")
    os.symlink(theirs, above)
    theirs.chmod(0o777)


def another_owner_above(kept: CodeCache) -> None:
    os.chown(kept.folder.parent, os.getuid() + 1, -1)


PLANTED: dict[str, Callable[[CodeCache], None]] = {
    "file of another user": another_owner,
    "file that others may write": lambda kept: the_file(kept).chmod(0o620),
    "folder that others may write": lambda kept: kept.folder.chmod(0o777),
    "folder above that all may write": lambda kept: kept.folder.parent.chmod(0o777),
    "folder above of another user": another_owner_above,
    "link above to what all may write": link_above,
    "link": link,
    "link to a folder": link_to_the_folder,
    "folder": folder_in_place,
    "pipe": pipe_in_place,
    "pipe in place of the folder": pipe_in_place_of_the_folder,
    "dangling link": dangling_link,
    "file of another place": from_another_place,
    "empty file": lambda kept: the_file(kept).write_bytes(b"") and None,
    "half a file": lambda kept: os.truncate(the_file(kept), 70),
    "changed file": lambda kept: (
        the_file(kept).write_bytes(the_file(kept).read_bytes()[:-1] + b"!") and None
    ),
}


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED)
def test_what_another_could_have_written_is_not_taken(
    kept: CodeCache, plant: Callable[[CodeCache], None]
) -> None:
    try:
        plant(kept)
    except PermissionError:
        pytest.skip("only root gives files away")
    files = set(os.listdir("/dev/fd"))
    assert kept.load(b"place", b"state") is None
    assert set(os.listdir("/dev/fd")) == files


BROKEN = ["link", "empty file", "half a file", "changed file", "pipe", "dangling link"]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_replaced(kept: CodeCache, name: str) -> None:
    PLANTED[name](kept)
    kept.keep(b"place", b"state", b"again")
    assert kept.load(b"place", b"state") == b"again"
    assert not the_file(kept).is_symlink()


def test_nothing_is_written_into_a_folder_of_others(kept: CodeCache) -> None:
    kept.folder.chmod(0o777)
    before = the_file(kept).read_bytes()
    kept.keep(b"place", b"state", b"again")
    assert the_file(kept).read_bytes() == before


def write_and_read(folder: Path, number: int) -> set[bytes | None]:
    """What is found by a process that also writes, 300 times."""
    kept = CodeCache(folder)
    found = set()
    for _ in range(300):
        kept.keep(b"place", b"state", bytes([number]) * 100_000)
        found.add(kept.load(b"place", b"state"))
    return found


def test_writers_at_the_same_time_leave_whole_files(tmp_path: Path) -> None:
    with ProcessPoolExecutor(3) as pool:
        jobs = [pool.submit(write_and_read, tmp_path / "code", number) for number in range(3)]
        found = set().union(*(job.result() for job in jobs))
    assert found <= {bytes([number]) * 100_000 for number in range(3)}
    assert len(list((tmp_path / "code").iterdir())) == 1


@pytest.mark.parametrize("mode", [0o775, 0o1777])
def test_folders_above_may_be_of_a_group_or_sticky(kept: CodeCache, mode: int) -> None:
    kept.folder.parent.chmod(mode)
    assert kept.load(b"place", b"state") is not None


def test_a_link_above_to_a_folder_of_ours_is_followed(kept: CodeCache) -> None:
    above = kept.folder.parent
    os.symlink(above.rename(above.parent / "ours"), above)
    assert kept.load(b"place", b"state") is not None
