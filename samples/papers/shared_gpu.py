"""Several processes on one GPU: what they do together, each multiplying in a loop."""

import json
import subprocess
import sys
from collections.abc import Sequence
from threading import Timer

from mixpert_py.errors import ProgramError
from mixpert_py.files import IMPORTED_FROM
from samples.papers.exhibit import Found, Row
from samples.papers.place import FP32, Place

PROCESSES = (1, 2, 4)
SIZE = 2048
SECONDS = 1.5
MOST_SECONDS = 90.0  # of processes that run at once: one that hangs must not hang the others
SCHEMES = {FP32: "native", "int8x6": "int8x6", "mixpert-IV": "mixpert-IV"}
AT_ONCE = 10  # products between two looks at the clock

# Says when it is ready for a scheme, waits for a line, and says how many products it made in what
# time. NumPy's stand in for the GPU's where there is none.
PROGRAM = """
import importlib, json, sys, time
module, root, size, seconds, at_once, *schemes = sys.argv[1:]
sys.path.insert(0, root)
xp = importlib.import_module(module)
import mixpert_py
finish = (lambda: None) if module == "numpy" else xp.cuda.Device().synchronize
backend = "reference" if module == "numpy" else "cuda"
a = xp.ones((int(size), int(size)), "float32")
b = xp.full((int(size), int(size)), 0.3, "float32")
for scheme in schemes:
    def once():
        if scheme == "native":
            return xp.matmul(a, b)
        return mixpert_py.matmul(a, b, scheme=scheme, backend=backend)
    once()
    finish()
    print("ready", flush=True)
    sys.stdin.readline()
    count, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < float(seconds):
        for _ in range(int(at_once)):
            once()
        finish()
        count += int(at_once)
    print(json.dumps([count, time.perf_counter() - start]), flush=True)
"""


def measure(place: Place) -> Found:
    """Throughput of 1, 2, 4 processes, of every scheme. Raises ProgramError where one fails."""
    size = place.size(SIZE)
    rows = [row for count in PROCESSES for row in together(count, place.xp.__name__, size, SECONDS)]
    alone = {row["name"]: row["tflops"] for row in rows if row["processes"] == 1}
    note = "Without CUDA's Multi-Process Service: processes take turns on the GPU."
    return Found(
        [{**row, "scaling": row["tflops"] / alone[row["name"]]} for row in rows], note=note
    )


def headline(rows: Sequence[Row]) -> str:
    most = max(row["processes"] for row in rows)
    parts = [f"{row['name']} {row['scaling']:.2f}×" for row in rows if row["processes"] == most]
    return f"{most} processes do {', '.join(parts)} of what one does"


def together(count: int, module: str, size: int, seconds: float) -> list[Row]:
    """TFLOP/s of `count` processes at once, a row a scheme."""
    arguments = map(str, (module, IMPORTED_FROM, size, seconds, AT_ONCE, *SCHEMES.values()))
    command = [sys.executable, "-c", PROGRAM, *arguments]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    processes = [
        subprocess.Popen(command, **pipes, text=True, bufsize=1)  # type: ignore[call-overload]
        for _ in range(count)
    ]
    late = Timer(MOST_SECONDS, _kill, [processes])
    late.daemon = True
    late.start()
    try:
        return [
            {"name": name, "processes": count, "n": size, "tflops": _round(processes, size)}
            for name in SCHEMES
        ]
    finally:
        late.cancel()
        _kill(processes)
        for process in processes:
            process.communicate()


def _kill(processes: Sequence["subprocess.Popen[str]"]) -> None:
    for process in processes:
        process.kill()


def _round(processes: Sequence["subprocess.Popen[str]"], size: int) -> float:
    """All start at once when all are ready; their products a second, in TFLOP/s."""
    for process in processes:
        _next_line(process)
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
    done = [json.loads(_next_line(process)) for process in processes]
    rate: float = sum(count / spent for count, spent in done)
    return 2e-12 * size**3 * rate


def _next_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    if not line:
        lines = process.stderr.read().strip().splitlines() or ["it said nothing"]
        raise ProgramError(f"a process that shares the GPU ended: {lines[-1]}")
    return line
