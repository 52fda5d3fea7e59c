"""Replaces files in one step: a reader, or a crash, sees either the old bytes or the new bytes."""

import errno
import os
import tempfile
from pathlib import Path

IMPORTED_FROM = Path(__file__).resolve().parents[1]  # the folder that holds this package
NEW_PREFIX = ".mixpert-new-"  # of the names that new bytes have until they replace the old
RUN_PREFIX = "mixpert-run-"  # of the names of what is in the system's temporary folder


def require_place(path: Path) -> None:
    """Raise OSError if it is known before writing that `replace` cannot write a file here."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    folder = path.parent
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
    # A new file takes the old one's place: for that the folder has to be writable, too.
    places = [place for place in (path, path.resolve().parent) if place.exists()]
    places = places[:1] if is_stream(path) else places
    if not all(os.access(place, os.W_OK) for place in places):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    if path.exists() and not is_stream(path):
        with tempfile.NamedTemporaryFile(dir=path.resolve().parent, prefix=NEW_PREFIX) as new:
            _keep_owner(new.name, path.stat())


def replace(path: Path, content: bytes, mode: int | None = None) -> None:
    """Replace a file's bytes; links are followed, and an existing file's owner stays.

    mode: its permissions; None keeps the old ones. A path that is not a regular file (a device, a
    pipe, /dev/stdout) is written to, not replaced. Raises OSError, and leaves the old file, if the
    file cannot be replaced.
    """
    if is_stream(path):
        with path.open("ab") as stream:
            stream.write(content)
        return
    target = Path(os.path.realpath(path))
    old = target.stat() if target.exists() else None
    if mode is None:
        mode = old.st_mode & 0o7777 if old else 0o644
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=NEW_PREFIX)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)  # the name must not reach the disk before the bytes
            if old is not None:
                _keep_owner(temporary, old)
            os.chmod(temporary, mode)  # last: a new owner takes the set-user-id bit away
            os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _keep_owner(temporary: str, old: os.stat_result) -> None:
    new = os.stat(temporary)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        os.chown(temporary, old.st_uid, old.st_gid)


def is_stream(path: Path) -> bool:
    """Return whether `replace` writes to a path instead of putting a new file in its place.

    This holds for paths in /dev and /proc, except /dev/shm, which holds ordinary files in memory,
    and for any existing path that is not a regular file.
    """
    places = path.parts[1:3]
    if path.is_absolute() and places[:1] in (("dev",), ("proc",)) and places != ("dev", "shm"):
        return True
    return path.exists() and not path.is_file()


def temporary_folder() -> "tempfile.TemporaryDirectory[str]":
    """A folder for a run, which is removed with its content afterwards."""
    # What left the process group of a run may still be writing there when it is removed.
    return tempfile.TemporaryDirectory(prefix=RUN_PREFIX, ignore_cleanup_errors=True)
