"""Compiled code kept on disk: one file for what was compiled, replaced when that has changed.

Code that is loaded is code that is run, so a file is trusted only if this user wrote it: it and
its folder belong to the user, nobody else may write to them, and neither is a link.
"""

import os
import stat
import sys
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

DIGEST = sha256().digest_size
FOLDER_MODE = 0o700
WRITABLE_BY_OTHERS = 0o022


class CodeCache:
    """Payloads by place and state, in a folder of its own.

    place: what was compiled, and how. state: what it was compiled from: as long as it is the same,
    the payload is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, place: bytes, state: bytes) -> bytes | None:
        """The payload kept for a place in this state; None where there is none to be trusted."""
        try:
            if not _is_ours(os.lstat(self.folder), stat.S_ISDIR):
                return None
            descriptor = os.open(self._file(place), os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
            with os.fdopen(descriptor, "rb") as file:
                if not _is_ours(os.fstat(file.fileno()), stat.S_ISREG):
                    return None
                content = file.read()
        except OSError:
            return None
        head, payload = content[: 2 * DIGEST], content[2 * DIGEST :]
        return payload if head == _head(place, state, payload) else None

    def keep(self, place: bytes, state: bytes, payload: bytes) -> None:
        """Keep a payload, if that can be done and Python is to write bytecode at all.

        The file is replaced in one step: of writers at the same time, one is the last.
        """
        if sys.dont_write_bytecode:
            return
        temporary = None
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
            if not _is_ours(os.lstat(self.folder), stat.S_ISDIR):
                return
            # Not forced to the disk: what a power failure leaves half is known by its digest.
            descriptor, temporary = tempfile.mkstemp(dir=self.folder, prefix=".")
            with os.fdopen(descriptor, "wb") as file:
                file.write(_head(place, state, payload) + payload)
            os.replace(temporary, self._file(place))
        except OSError:
            if temporary is not None and os.path.exists(temporary):
                os.unlink(temporary)

    def _file(self, place: bytes) -> Path:
        return self.folder / sha256(place).hexdigest()


def _head(place: bytes, state: bytes, payload: bytes) -> bytes:
    """What a file begins with: whose it is, and that it is whole."""
    key = sha256(sha256(place).digest() + sha256(state).digest()).digest()
    return key + sha256(payload).digest()


def _is_ours(status: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    if not is_kind(status.st_mode):
        return False
    if not hasattr(os, "getuid"):  # owners and modes mean something on POSIX only
        return True
    return status.st_uid == os.getuid() and not status.st_mode & WRITABLE_BY_OTHERS
