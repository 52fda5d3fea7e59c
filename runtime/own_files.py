"""Files that are believed only if nobody but this user could have written them.

Such a file and its folder belong to the user, nobody else may write to them, and neither is a link.
The folders above, and those that links among them lead to, belong to the user or to root, and not
everybody may put another in the place of what is in them. `CodeCache` keeps compiled code in such
files: one for each source, replaced when the source changes.
"""

import errno
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

FOLDER_MODE = 0o700
WRITABLE_BY_OTHERS = 0o022
# Opening a pipe waits for a writer, unless it is told not to.
READING = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
DIGEST = sha256().digest_size


def folder(*names: str) -> Path:
    """The folder of this user's files of one kind; it need not exist.

    Of a user without a home, as in some containers, it is below a device, where nothing can be.
    """
    home = os.path.expanduser("~")
    return Path(home if os.path.isabs(home) else os.devnull, ".cache", "mixpert", *names)


def read(path: Path) -> bytes | None:
    """The content of a file; None where there is none to be believed."""
    try:
        if not _is_safe(path.parent):
            return None
        descriptor = os.open(path, READING)
    except OSError:
        return None
    try:
        if not _is_ours(os.fstat(descriptor), stat.S_ISREG):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    except OSError:
        return None
    finally:
        os.close(descriptor)


def files(folder: Path) -> list[Path]:
    """The files of a folder that `read` accepts."""
    try:
        if not _is_safe(folder):
            return []
        return [path for path in folder.iterdir() if _is_ours(path.lstat(), stat.S_ISREG)]
    except OSError:
        return []


def write(path: Path, content: bytes) -> None:
    """Replace a file, for this user alone to read, and make its folder where there is none.

    In one step: of writers at the same time, one is the last. Raises OSError where that cannot be
    done, and where it would not be believed afterwards.
    """
    folder = path.parent
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    if not _is_safe(folder):
        raise PermissionError(errno.EPERM, "others than you can write to this folder", str(folder))
    # Not forced to the disk: what a power failure leaves half, who reads it has to know.
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _is_safe(folder: Path) -> bool:
    """Return whether nobody else can put a file, or another folder, in this folder's place."""
    if not _is_ours(os.lstat(folder), stat.S_ISDIR):
        return False
    if not hasattr(os, "getuid"):
        return True
    trusted = {os.getuid(), 0, os.stat("/").st_uid}  # in a container root may have another number
    for place in (*folder.absolute().parents, *folder.resolve().parents):
        status = os.stat(place)
        # In a sticky folder, such as /tmp, only its owner can replace what is there.
        is_open = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
        if status.st_uid not in trusted or is_open:
            return False
    return True


def _is_ours(status: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    if not is_kind(status.st_mode):
        return False
    if not hasattr(os, "getuid"):  # owners and modes mean something on POSIX only
        return True
    return status.st_uid == os.getuid() and not status.st_mode & WRITABLE_BY_OTHERS


class CodeCache:
    """Payloads by place and state, in one folder.

    place: the name of the compiled source, with the settings of the compiler. state: a fingerprint
    of the source; a payload is valid while it is unchanged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, place: bytes, state: bytes) -> bytes | None:
        """The payload kept for a place in this state; None where there is none to be trusted."""
        content = read(self._file(place)) or b""
        head, payload = content[: 2 * DIGEST], content[2 * DIGEST :]
        return payload if head == _head(place, state, payload) else None

    def keep(self, place: bytes, state: bytes, payload: bytes) -> None:
        """Keep a payload, if that can be done."""
        with suppress(OSError):
            write(self._file(place), _head(place, state, payload) + payload)

    def _file(self, place: bytes) -> Path:
        return self.folder / sha256(place).hexdigest()


def _head(place: bytes, state: bytes, payload: bytes) -> bytes:
    """The header of a cached file: it names the owner, and shows that the file is whole."""
    key = sha256(sha256(place).digest() + sha256(state).digest()).digest()
    return key + sha256(payload).digest()
