"""What a job finds in its process and may change: taken before it, and put back after it."""

import atexit
import gc
import os
import random
import resource
import signal
import sys
import threading
import warnings
from contextlib import suppress
from typing import Any

import numpy as np

from mixpert_py import config, observation
from mixpert_py.runtime import in_force

MOST_GROWTH = 1 << 28  # bytes that later jobs may leave in use, of the host's memory and CuPy's
LISTS = ("path", "meta_path", "path_hooks", "argv")
HOOKS = ("stdin", "stdout", "stderr", "__stdout__", "excepthook", "displayhook", "unraisablehook")
LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]


class Surroundings:
    """The state of this process as it was when this was made."""

    def __init__(self) -> None:
        self._modules = dict(sys.modules)
        self._lists = {name: list(getattr(sys, name)) for name in LISTS}
        self._hooks = {name: getattr(sys, name) for name in HOOKS}
        self._folder = os.getcwd()
        self._environment = config.environment()
        self._filters = list(warnings.filters)
        self._handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
        self._errors = np.geterr()
        self._printing = np.get_printoptions()
        self._compared = _compared()
        self._in_use: tuple[int, int] | None = None  # after the first job

    def restore(self) -> bool:
        """Put back what a job may have changed; False where it left what cannot be put back.

        Libraries that it imported stay, what it has set in them, and the memory that CuPy's pools
        have of the driver: every job finds it, `warm_up` has asked for it already.
        """
        self._forget_modules()
        for name, entries in self._lists.items():
            getattr(sys, name)[:] = entries
        for name, hook in self._hooks.items():
            setattr(sys, name, hook)
        os.chdir(self._folder)
        config.restore_environment(self._environment)
        warnings.filters[:] = self._filters  # type: ignore[index]
        for number, handler in self._handlers.items():
            if signal.getsignal(number) != handler:
                signal.signal(number, handler)
        np.seterr(**self._errors)
        np.set_printoptions(**self._printing)
        observation.forget()
        in_force.set_default(in_force.INITIAL)
        seed_anew()
        gc.collect()  # arrays in cycles
        in_use = _bytes_in_use()
        self._in_use = self._in_use or in_use
        grown = max(now - before for now, before in zip(in_use, self._in_use, strict=True))
        return grown <= MOST_GROWTH and _compared() == self._compared and not _has_children()

    def _forget_modules(self) -> None:
        """Those that a job made, or found in folders that it had on its path, and only it."""
        own = {os.path.realpath(entry) for entry in sys.path} - set(self._lists["path"])
        for name, module in list(sys.modules.items()):
            if name not in self._modules and _is_in(module, own, self._lists["path"]):
                del sys.modules[name]
        sys.modules.update(self._modules)


def seed_anew() -> None:
    """Seed what a new process seeds."""
    random.seed()
    if "numpy.random" in sys.modules:
        np.random.seed()
    if "cupy.random" in sys.modules:
        sys.modules["cupy.random"]._generator.reset_states()


def _is_in(module: Any, own: set[str], others: list[str]) -> bool:
    """Whether a module is of one of the folders `own`, and not of one of the others within it."""
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    place = next((os.path.realpath(place) for place in places if isinstance(place, str)), None)
    if place is None:
        return getattr(module, "__spec__", None) is None  # built in, or made by hand
    nearest = max((f for f in [*others, *own] if f and place.startswith(f + os.sep)), key=len)
    return nearest in own


def _compared() -> dict[str, Any]:
    """What is not put back: hardly a program changes it."""
    return {
        "process": os.getpid(),
        "threads": set(threading.enumerate()),
        "at exit": atexit._ncallbacks(),
        "streams": [getattr(sys, name).closed for name in HOOKS[:3]],
        "limits": [resource.getrlimit(which) for which in LIMITS],
        "blocked signals": signal.pthread_sigmask(signal.SIG_BLOCK, []),
        "cores": os.sched_getaffinity(0),
        "nice": os.nice(0),
        "umask": _umask(),
        "collector": [gc.isenabled(), gc.get_threshold()],
        "depth": sys.getrecursionlimit(),
    }


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _has_children() -> bool:
    """Whether a process that the job started is still there; those that ended are let go."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def _bytes_in_use() -> tuple[int, int]:
    """Of the host's memory, and of CuPy's on the current device."""
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    cupy = sys.modules.get("cupy")
    on_device = cupy.get_default_memory_pool().used_bytes() if cupy is not None else 0
    return pages * resource.getpagesize(), on_device
