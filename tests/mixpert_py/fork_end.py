"""Forks that end without clearing what they share with the process that forked them.

An interpreter that ends clears every module, and so writes to nearly all its memory, of which a
fork would first get copies: that takes longer than most commands and programs of these tests.
"""

import atexit
import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType

KEPT: dict[str, ModuleType] = {}


class _End:
    """An attribute of `sys` that ends the process when the interpreter clears that module.

    `sys` is cleared last but one, after all that the program can notice. What follows frees every
    interned string, which a fork would have to copy first.
    """

    def __init__(self, code: int) -> None:
        self._code = code
        self._streams = sys.stdout, sys.stderr

    def __del__(self) -> None:
        for stream in self._streams:
            with suppress(Exception):
                stream.flush()
        os._exit(self._code & 255)


@contextmanager
def known_code() -> Iterator[None]:
    """Run what a fork is for, and let it end sooner where its exit code is a number."""
    code: object = 0
    try:
        yield
    except SystemExit as stop:
        code = stop.code or 0
        raise
    except BaseException:
        code = None
        raise
    finally:
        if isinstance(code, int) and _can_flush():  # any other is to be printed
            vars(sys)["end_of_fork"] = _End(code)


def _can_flush() -> bool:
    """Whether stdout is flushed at the end; where that fails, Python makes another exit code."""
    try:
        sys.stdout.flush()
    except Exception:  # the program may have put anything in the place of stdout
        return False
    return sys.stdout is sys.__stdout__


def keep_imported() -> None:
    """Leave the modules that are imported before a fork as they are when the fork ends.

    To be called before they are imported: of what is to run at the end, the first comes last. What
    a fork imports and makes itself ends as in any interpreter: files are closed, for instance.
    """
    atexit.register(_forget)
    os.register_at_fork(before=_keep)


def _keep() -> None:
    for name, module in sys.modules.items():
        if KEPT.get(name) is not module and name != "__main__":
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(module))
            KEPT[name] = module


def _forget() -> None:
    for name, module in KEPT.items():
        if sys.modules.get(name) is module and name not in ("sys", "builtins"):
            del sys.modules[name]
