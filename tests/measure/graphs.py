"""Functions under `accelerate(graph=True)`, by wall clock, on a GPU.

Each is called again and again, as a program does that goes on with the result: natively, under
`accelerate`, and captured.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import click

import mixpert_py
from mixpert_py.bench import machine
from mixpert_py.bench.gemm import tables
from mixpert_py.bench.timing import in_turn, summary
from mixpert_py.cli import main

CALLS = 200
ROUNDS = 11
COLUMNS = ["function", "library", "native, µs", "`accelerate`", "`accelerate(graph=True)`"]


def mlp(x: Any, w1: Any, w2: Any, w3: Any) -> Any:
    h = (x @ w1).clip(0)
    h = (h @ w2).clip(0)
    return h @ w3


def kalman(x: Any, p: Any, f: Any, q: Any) -> Any:
    x = f @ x
    p = f @ p @ f.T + q
    gain = p / (p.diagonal() + 1.0)
    return x + gain @ x, p - gain @ p


def power(x: Any, a: Any) -> Any:
    y = a @ x
    return y / abs(y).max()


CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, int], ...]]] = {
    "perceptron, batch 256, 3 × 1024²": (mlp, ((256, 1024), *[(1024, 1024)] * 3)),
    "perceptron, batch 2048, 3 × 2048²": (mlp, ((2048, 2048), *[(2048, 2048)] * 3)),
    "Kalman step, 256 states": (kalman, ((256, 1), *[(256, 256)] * 3)),
    "power iteration, 1024² × 64": (power, ((1024, 64), (1024, 1024))),
    "subspace iteration, 2048² × 2048": (power, ((2048, 2048), (2048, 2048))),
}


def functions() -> Iterator[tuple[str, str, dict[str, Callable[[], Any]], Callable[[], None]]]:
    """Each case by each library: its name, the functions, and a function that waits."""
    import cupy

    torch = import_module("torch")
    for name, (function, shapes) in CASES.items():
        for library, wait in (
            ("CuPy", cupy.cuda.Device().synchronize),
            ("PyTorch", torch.cuda.synchronize),
        ):
            rng = cupy.random.default_rng(0)
            given = [rng.standard_normal(s, "float32") / s[0] ** 0.5 for s in shapes]
            if library == "PyTorch":
                given = [torch.as_tensor(x, device="cuda") for x in given]
            made = {
                "native": function,
                "accelerated": mixpert_py.accelerate(function),
                "captured": mixpert_py.accelerate(graph=True)(function),
            }
            bound = {which: _bound(made[which], given) for which in made}
            yield name, library, bound, wait


def _bound(function: Callable[..., Any], given: list[Any]) -> Callable[[], Any]:
    return lambda: function(*given)


def _repeated(call: Callable[[], Any], wait: Callable[[], None]) -> None:
    for _ in range(CALLS):
        call()
    wait()


def measure() -> list[dict[str, Any]]:
    """A row for each function and library: µs of a call."""
    rows = []
    for name, library, made, wait in functions():
        timed = {}
        for which, call in made.items():
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                for _ in range(4):
                    call()
            if any("not captured" in str(warning.message) for warning in heard):
                continue

            timed[which] = partial(_repeated, call, wait)
        times = in_turn(timed, ROUNDS)
        row = {which: summary([1e6 * t / CALLS for t in times[which]]) for which in times}
        rows.append({"function": name, "library": library, **row})
    return rows


def table(rows: list[dict[str, Any]], facts: dict[str, Any]) -> dict[str, Any]:
    """The table of docs/measured.md."""
    lines = []
    for row in rows:
        native = row["native"]["median"]
        gains = [
            f"{native / row[which]['median']:.2f}×" if which in row else "not captured"
            for which in ("accelerated", "captured")
        ]
        lines.append([row["function"], row["library"], f"{native:.0f}", *gains])
    text = (
        "How many times as fast as the native function, by wall clock, called again and again. "
        f"One {facts['device']}, {facts['date']}: `python -m tests.measure.graphs --save`."
    )
    return {"columns": COLUMNS, "rows": lines, "text": text}


@click.command()
@click.option("--save", is_flag=True, help="Keep the result beside those of `mixpert bench`.")
def command(save: bool) -> int:
    """Functions that are captured into CUDA graphs, by wall clock."""
    facts = {**machine.machine(), **machine.device(machine.gpu())}
    rows = measure()
    shown = table(rows, facts)
    machine.finish("graphs", {"machine": facts, "rows": rows, "table": shown}, save)
    click.echo(f"{tables.markdown(shown['columns'], shown['rows'])}\n\n{shown['text']}")
    return 0


if __name__ == "__main__":
    main(command, "python -m tests.measure.graphs")
