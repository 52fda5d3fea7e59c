"""Seconds of the first product of a fresh process, when its kernels have been compiled before."""

import json
import subprocess
import sys
from dataclasses import dataclass

from mixpert_py.bench.timing import summary
from mixpert_py.errors import ProgramError
from mixpert_py.files import IMPORTED_FROM

# The device is woken, and CuPy's own kernels are loaded, by a program that uses CuPy anyway.
PROGRAM = """
import json, sys, time
sys.path[:0] = sys.argv[2:]
start = time.perf_counter()
import cupy
a = cupy.sin(cupy.arange(2048 * 2048, dtype=cupy.float32)).reshape(2048, 2048)
(a @ a).get()
ready = time.perf_counter()
import mixpert_py
mixpert_py.matmul
imported = time.perf_counter()
mixpert_py.matmul(a, a, scheme=sys.argv[1])
cupy.cuda.Device().synchronize()
done = time.perf_counter()
mixpert_py.matmul(a, a, scheme=sys.argv[1])
cupy.cuda.Device().synchronize()
again = time.perf_counter()
print(json.dumps([ready - start, imported - ready, done - imported, again - done]))
"""


@dataclass(frozen=True, slots=True)
class FirstCall:
    """call: seconds of the first call and the import before it; detail: in words."""

    call: dict[str, float]
    detail: str


def measure(scheme: str, runs: int = 3) -> FirstCall:
    """Fresh processes one after the other; one more before them fills the cache on disk.

    Raises ProgramError where such a process fails.
    """
    _run(scheme)
    found = [_run(scheme) for _ in range(runs)]
    parts = zip(*found, strict=True)
    ready, imported, first, again = (summary(list(part))["median"] for part in parts)
    detail = f"import {imported:.2f} s, call {first:.2f} s, the next {1e3 * again:.1f} ms; "
    detail += f"CuPy itself {ready:.2f} s before"
    return FirstCall(summary([one[1] + one[2] for one in found]), detail)


def _run(scheme: str) -> list[float]:
    command = [sys.executable, "-c", PROGRAM, scheme, str(IMPORTED_FROM)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise ProgramError(f"first call in a fresh process: {lines[-1]}")
    times: list[float] = json.loads(done.stdout)
    return times
