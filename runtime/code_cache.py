"""Cache of compiled code on disk: one file for each source, replaced when the source changes.

Loaded code is executed, so a file is loaded only if this user wrote it, and wrote all of it.
"""

from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from mixpert_py.runtime import own_files

DIGEST = sha256().digest_size


class CodeCache:
    """Payloads by place and state, in one folder.

    place: the name of the compiled source, with the settings of the compiler. state: a fingerprint
    of the source; a payload is valid while it is unchanged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, place: bytes, state: bytes) -> bytes | None:
        """The payload kept for a place in this state; None where there is none to be trusted."""
        content = own_files.read(self._file(place)) or b""
        head, payload = content[: 2 * DIGEST], content[2 * DIGEST :]
        return payload if head == _head(place, state, payload) else None

    def keep(self, place: bytes, state: bytes, payload: bytes) -> None:
        """Keep a payload, if that can be done."""
        with suppress(OSError):
            own_files.write(self._file(place), _head(place, state, payload) + payload)

    def _file(self, place: bytes) -> Path:
        return self.folder / sha256(place).hexdigest()


def _head(place: bytes, state: bytes, payload: bytes) -> bytes:
    """The header of a cached file: it names the owner, and shows that the file is whole."""
    key = sha256(sha256(place).digest() + sha256(state).digest()).digest()
    return key + sha256(payload).digest()
