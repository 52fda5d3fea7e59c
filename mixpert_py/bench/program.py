"""A program measured as it was and under a plan: warm runs in one process, in turn."""

import contextlib
import gc
import io
import sys
from typing import Any

from mixpert_py.bench.timing import in_turn, summary
from mixpert_py.launch import launcher
from mixpert_py.launch.launcher import Program
from mixpert_py.plan import Plan
from mixpert_py.runtime.context import Context


def measure(program: Program, plan: Plan, rounds: int = 7) -> dict[str, Any]:
    """Wall-clock seconds of the whole program, native and under the plan; output is dropped.

    A run has ended when the GPU has done all that it has enqueued.
    """
    rewritten = launcher.compiled(program)
    ours = sys.modules["__main__"]

    def run(context: Context) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            launcher.execute(program, rewritten, context)
        _wait_for_gpu()
        # The program's arrays go now, or the next run would need new memory beside them.
        sys.modules["__main__"] = ours
        gc.collect()

    try:
        times = in_turn(
            {"native": lambda: run(Context()), "plan": lambda: run(Context(plan=plan))}, rounds
        )
    finally:
        sys.modules["__main__"] = ours
    rows = {name: summary(row) for name, row in times.items()}
    return {
        "unit": "s",
        "program": " ".join(program.argv),
        "schemes": plan.schemes(),
        "rows": rows,
        # The ratio is taken round by round: what slows the machine down slows both runs of a round.
        "speedup": summary([a / b for a, b in zip(times["native"], times["plan"], strict=True)]),
    }


def _wait_for_gpu() -> None:
    """Wait for what the program has enqueued by libraries that it has imported."""
    cupy: Any = sys.modules.get("cupy")
    if cupy is not None and cupy.is_available():
        cupy.cuda.Device().synchronize()
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
