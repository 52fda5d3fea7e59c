"""Files are replaced in one step: a reader, or a crash, sees the old bytes or the new ones."""

import errno
import os
import tempfile
from pathlib import Path

IMPORTED_FROM = Path(__file__).resolve().parents[1]  # the folder that holds this package


def require_place(path: Path) -> None:
    """Raise OSError where `replace` could not put a file, as far as that is known before."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    folder = path.parent
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def replace(path: Path, content: bytes, mode: int | None = None) -> None:
    """Replace a file's bytes; links are followed, and an old file's owner stays.

    mode: its permissions; None keeps the old ones. What is no regular file (a device, a pipe,
    /dev/stdout) is written to, not replaced. Raises OSError, and leaves the old file, where that
    cannot be done.
    """
    if is_stream(path):
        with path.open("ab") as stream:
            stream.write(content)
        return
    target = Path(os.path.realpath(path))
    old = target.stat() if target.exists() else None
    if mode is None:
        mode = old.st_mode & 0o7777 if old else 0o644
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # the name must not reach the disk before the bytes
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
    """Whether `replace` writes to it: what is in /dev or /proc, and what is no regular file."""
    if path.is_absolute() and path.parts[1:2] in (("dev",), ("proc",)):
        return True
    return path.exists() and not path.is_file()
