"""Plants files in the caches of this process's home, and checks whether they are taken."""

import json
import marshal
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from mixpert_py.runtime.code_cache import DIGEST
from mixpert_py.runtime.kernels import compile as kernels
from mixpert_py.runtime.model import device_model, known_devices
from mixpert_py.sources import in_memory

SOURCE = b"def f(a, b):\n    return a @ b\n"
EVIL = b"evil"


class Cache(NamedTuple):
    """A cache, and how to plant a file in it.

    fill: makes this package write `file`. evil: the planted content, given the good one. load:
    reads the cache; its result contains "evil" if the file was taken. digest: whether files hold
    digests.
    """

    file: Path
    fill: Callable[[], object]
    evil: Callable[[bytes], bytes]
    load: Callable[[], str]
    digest: bool


def main(folder: str) -> None:
    """Print the fate of every planted file as JSON. folder: this process's home, still empty."""
    sys.dont_write_bytecode = False  # the cache of rewritten code heeds it
    found = {name: _planted(cache) for name, cache in _caches(Path(folder)).items()}
    print(json.dumps(found))


def _planted(cache: Cache) -> dict[str, str]:
    ways = WAYS | (BROKEN if cache.digest else {})
    return {name: _tried(cache, way) for name, way in ways.items()}


def _tried(cache: Cache, plant: Callable[[Path, bytes], object]) -> str:
    folder = cache.file.parent
    if folder.is_symlink():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    cache.fill()
    good = cache.file.read_bytes()
    try:
        plant(cache.file, cache.evil(good))
    except PermissionError:
        return "not tried"
    try:
        return "taken" if EVIL.decode() in cache.load() else "ignored"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _caches(home: Path) -> Mapping[str, Cache]:
    script = home / "script.py"
    script.write_bytes(SOURCE)
    rewritten = partial(in_memory.rewritten, SOURCE, "script", str(script))
    rewritten()
    kernel = partial(kernels.cached, b"place", lambda: b"good")
    kernel()
    (code_file,) = (home / ".cache/mixpert/code").iterdir()
    (kernel_file,) = (home / ".cache/mixpert/kernels").iterdir()
    model = known_devices.find("t4")
    planted = device_model.dumps(msgspec.structs.replace(model, cuda=EVIL.decode())).encode()
    code = marshal.dumps((compile("", EVIL.decode(), "exec"), ()))

    def loaded_code() -> str:
        found = rewritten()
        return "" if found is None else found.code.co_filename

    return {
        "rewritten code": Cache(code_file, rewritten, partial(_whole, code), loaded_code, True),
        "kernels": Cache(
            kernel_file, kernel, partial(_whole, EVIL), lambda: kernel().decode(), True
        ),
        "device models": Cache(
            known_devices.path_of(model.device),
            partial(known_devices.keep, model),
            lambda good: planted,
            lambda: known_devices.find("t4").cuda,
            False,
        ),
    }


def _whole(payload: bytes, good: bytes) -> bytes:
    """The content as the cache would write it, since an attacker knows the format."""
    return good[:DIGEST] + sha256(payload).digest() + payload


def _by_another(file: Path, evil: bytes) -> None:
    file.write_bytes(evil)
    os.chown(file, os.getuid() + 1, -1)


def _in_folder_of_another(file: Path, evil: bytes) -> None:
    file.write_bytes(evil)
    os.chown(file.parent, os.getuid() + 1, -1)


def _writable(mode: int, file: Path, evil: bytes) -> None:
    file.write_bytes(evil)
    file.chmod(mode)


def _in_writable_folder(mode: int, file: Path, evil: bytes) -> None:
    file.write_bytes(evil)
    file.parent.chmod(mode)


def _link(file: Path, evil: bytes) -> None:
    elsewhere = file.parent.parent / "elsewhere"
    elsewhere.write_bytes(evil)
    file.unlink()
    file.symlink_to(elsewhere)


def _in_linked_folder(file: Path, evil: bytes) -> None:
    file.write_bytes(evil)
    elsewhere = file.parent.with_name("elsewhere-folder")
    shutil.rmtree(elsewhere, ignore_errors=True)
    file.parent.rename(elsewhere)
    file.parent.symlink_to(elsewhere)


def _pipe(file: Path, evil: bytes) -> None:
    """A pipe: opening it to read waits until somebody writes to it."""
    file.unlink()
    os.mkfifo(file, 0o600)


WAYS: dict[str, Callable[[Path, bytes], object]] = {
    "by the user himself": lambda file, evil: file.write_bytes(evil),
    "by another user": _by_another,
    "in another user's folder": _in_folder_of_another,
    "where a group may write": partial(_writable, 0o620),
    "where all may write": partial(_writable, 0o602),
    "in a folder where a group may write": partial(_in_writable_folder, 0o770),
    "in a folder where all may write": partial(_in_writable_folder, 0o1777),
    "as a link": _link,
    "as a link to a folder": _in_linked_folder,
    "as a pipe": _pipe,
}
BROKEN: dict[str, Callable[[Path, bytes], object]] = {
    "cut short": lambda file, evil: file.write_bytes(evil[:-1]),
    "without its digest": lambda file, evil: file.write_bytes(evil[2 * DIGEST :]),
    "under another key": lambda file, evil: file.write_bytes(bytes(DIGEST) + evil[DIGEST:]),
    "after a good one's head": lambda file, evil: file.write_bytes(
        file.read_bytes()[: 2 * DIGEST] + evil[2 * DIGEST :]
    ),
}


if __name__ == "__main__":
    main(*sys.argv[1:])
