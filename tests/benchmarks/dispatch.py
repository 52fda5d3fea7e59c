"""The costs of calls: of those that pass through, beside native ones, and of emulated ones.

Wall clock, in microseconds per call, functions in turn. Without a GPU, operands of every kind that
pass through; with one, CuPy's arrays and PyTorch's tensors, and what enqueuing an emulated product
takes.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from statistics import geometric_mean
from subprocess import PIPE, Popen
from time import perf_counter
from typing import Any

import click
import numpy as np

import mixpert_py
from mixpert_py.cli import main
from mixpert_py.runtime.gpu import device
from tests.benchmarks import machine, patterns
from tests.benchmarks.programs import COMMANDS
from tests.benchmarks.timing import in_turn, repeated, summary

SITE = "bench:<module>/matmul~0000#0"
SCHEMES = ("faithful",)
EMULATED = (512, 1024, 2048, 4096)
CALLS = 20_000
ENQUEUED = 20  # calls in a row that the host need not wait for

Pair = tuple[Callable[[], Any], Callable[[], Any]]


def measure() -> dict[str, Any]:
    """Native calls and ours: in one round CALLS of the quickest; of others, as many as last as
    long.
    """
    if isinstance(device.find(), device.Absent):
        return {"unit": "µs per call", "passing": _passing(_host_pairs(), 41, CALLS)}
    import cupy

    pairs, rounds, wait = _device_pairs(cupy), 9, cupy.cuda.runtime.deviceSynchronize
    return {
        "unit": "µs per call",
        "passing": _passing(pairs, rounds, CALLS // 20, wait),
        "emulated": [_emulated(cupy, n, rounds) for n in EMULATED],
    }


def _host_pairs() -> Iterator[tuple[str, Pair]]:
    """Each kind of operands that are on no GPU: the native product, and ours."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((8, 8))
    yield "NumPy, `a @ b`", _operator(a)
    yield (
        "NumPy, `np.matmul`",
        (lambda: np.matmul(a, a), lambda: mixpert_py.matmul(a, a, site=SITE, native=np.matmul)),
    )
    yield "NumPy, integers", _operator(rng.integers(0, 9, (8, 8)))
    fractions = np.array([[Fraction(i, j) for i in (1, 2)] for j in (3, 4)])
    yield "NumPy, Python objects", _operator(fractions)
    yield (
        "Python scalars, `np.dot`",
        (lambda: np.dot(2.0, 3.0), lambda: mixpert_py.dot(2.0, 3.0, site=SITE)),
    )
    others: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "scipy.sparse": ("SciPy, sparse", lambda sparse: sparse.csr_matrix(np.eye(8))),
        "dask.array": ("Dask", lambda dask: dask.ones((8, 8), chunks=4)),
        "torch": ("PyTorch, on the host", lambda torch: torch.ones(8, 8)),
    }
    for module, (what, make) in others.items():
        if find_spec(module.partition(".")[0]) is not None:
            yield what, _operator(make(import_module(module)))


def _device_pairs(cupy: Any) -> Iterator[tuple[str, Pair]]:
    """Kinds of operands on this GPU that are too small to gain: the native product, and ours."""
    torch = import_module("torch") if find_spec("torch") is not None else None
    for n in (64, 600):
        yield f"CuPy, {n} × {n}", _operator(cupy.ones((n, n), cupy.float32))
        if torch is not None:
            yield f"PyTorch, {n} × {n}", _operator(torch.ones(n, n, device="cuda"))
    vector = cupy.ones(4096, cupy.float32)
    yield (
        "CuPy, `xp.dot` of vectors",
        (
            lambda: cupy.dot(vector, vector),
            lambda: mixpert_py.xp_product(vector, vector, site=SITE, native=cupy.dot),
        ),
    )
    yield from _contractions("CuPy", cupy.einsum, mixpert_py.einsum, cupy.ones, cupy)
    if torch is not None:
        matrix = torch.ones(64, 64, device="cuda")
        yield (
            "PyTorch, `torch.mm`, 64 × 64",
            (
                lambda: torch.mm(matrix, matrix),
                lambda: mixpert_py.torch_matmul(matrix, matrix, site=SITE, native=torch.mm),
            ),
        )
        yield from _contractions("PyTorch", torch.einsum, mixpert_py.torch_call, torch.ones, torch)
        for shape in (64, 64), (192, 16, 16):
            weights = torch.ones(*shape, device="cuda", requires_grad=True)
            yield f"PyTorch with gradients, {' × '.join(map(str, shape))}", _operator(weights)


def _contractions(
    library: str, einsum: Any, ours: Any, ones: Any, types: Any
) -> Iterator[tuple[str, Pair]]:
    """Stacks so small that the device waits for the host, of as many matrices as may gain."""
    given = {"device": "cuda"} if library == "PyTorch" else {}
    a, b, v, long = (
        ones(shape, dtype=types.float64, **given)
        for shape in ((1024, 4, 4), (1024, 4, 4), (1024, 4, 1), (4096,))
    )
    words = "bij,bjk,bkl->bil"
    yield f"{library}, 1024 × 4 × 4", _operator(a)
    yield f"{library}, 1024 × 4 × 4 by 1024 × 4 × 1", _operator(a, v)
    yield f"{library}, `v @ v`", _operator(long)
    yield (
        f"{library}, `einsum` of three",
        (
            lambda: einsum(words, a, b, a),
            lambda: ours(words, a, b, a, site=SITE, native=einsum),
        ),
    )


def _operator(a: Any, b: Any = None) -> Pair:
    b = a if b is None else b
    return lambda: a @ b, lambda: mixpert_py.matmul(a, b, site=SITE)


def _passing(
    pairs: Iterator[tuple[str, Pair]],
    rounds: int,
    calls: int,
    wait: Callable[[], Any] = lambda: None,
) -> list[dict[str, Any]]:
    """A row for each pair; wait: until the device is done, after the calls of a round."""
    rows = []
    for what, (native, ours) in pairs:
        ours()
        (took,) = in_turn({"native": native}, 1, 10)["native"]
        wait()
        some = max(1, min(calls, round(calls * 1e-6 / took)))
        times = in_turn(
            {"native": repeated(native, some, wait), "ours": repeated(ours, some, wait)}, rounds
        )
        rows.append({"what": what, **_columns(times, some)})
    return rows


def _emulated(cupy: Any, n: int, rounds: int) -> dict[str, Any]:
    """A row with the times that the host takes to enqueue a product of n³, by CuPy and by each
    scheme.
    """
    a, b = (cupy.random.default_rng(i).standard_normal((n, n), "float32") for i in range(2))
    calls: dict[str, Callable[[], Any]] = {"native": lambda: a @ b}
    calls |= dict.fromkeys(SCHEMES, lambda: mixpert_py.matmul(a, b, site=SITE))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 3):
        for name, call in calls.items():
            # By that backend, products that would not gain are emulated too.
            with mixpert_py.precision(name, backend="cuda"):
                call()
                cupy.cuda.Device().synchronize()
                start = perf_counter()
                for _ in range(ENQUEUED):
                    call()
                times[name].append((perf_counter() - start) / ENQUEUED)
    return {"n": n, **_columns({name: row[3:] for name, row in times.items()}, 1)}


def _columns(times: Mapping[str, list[float]], calls: int) -> dict[str, dict[str, float]]:
    """Microseconds per call of rows of seconds."""
    return {name: summary([1e6 * t / calls for t in row]) for name, row in times.items()}


def markdown(found: Mapping[str, Any]) -> str:
    facts = found["machine"]
    parts = [_table("operands that pass through", found["passing"], "what", ("native", "ours"))]
    where = f"{facts['cpu']}, {facts['cores']} cores"
    if "emulated" in found:
        where = f"One {facts['device']} ({where})"
        title = f"enqueuing {ENQUEUED} products in a row, each of n³"
        parts.append(_table(title, found["emulated"], "n", ("native", *SCHEMES)))
    text = "\n\n".join(parts)
    return f"{text}\n\n{where}, {facts['date']}. Medians, in µs.\n"


def _table(title: str, rows: list[dict[str, Any]], key: str, columns: tuple[str, ...]) -> str:
    lines = []
    for row in rows:
        times = [row[name]["median"] for name in columns]
        digits = 2 if max(times) < 100 else 1
        shown = (f"{t:.{digits}f}" for t in times)
        lines.append([str(row[key]), *shown, f"{times[-1] - times[0]:+.2f}"])
    more = f"{_NAMES[columns[-1]]} − native"
    return machine.table((title, *(_NAMES[name] for name in columns), more), lines)


def sweep_sentence(found: Mapping[str, Any]) -> str:
    """How the patterns of a saved sweep ran, in one sentence."""
    ratios = sorted(row["ratio"]["median"] for row in found["rows"])
    slower = sum(ratio < 0.95 for ratio in ratios)
    return (
        f"{len(ratios)} patterns of CuPy and PyTorch programs ran at {ratios[0]:.2f}× to "
        f"{ratios[-1]:.2f}×, by the geometric mean {geometric_mean(ratios):.2f}×; {slower} below "
        f"0.95×. One {found['machine']['device']}, {found['machine']['date']}.\n"
    )


_NAMES = {"native": "native", "ours": "MixPert-Py", "faithful": "`faithful`"}


def sweep(words: str, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """A row for each pattern of `patterns` whose name has some words, the slowest of ours first."""
    rows: list[dict[str, Any]] = []
    for library, found in patterns.PATTERNS.items():
        names = [name for name, *_ in found if words in f"{library}: {name}"]
        for name, both in zip(names, _in_turn(library, names, rounds, seconds), strict=True):
            native, ours = map(list, zip(*both, strict=True))
            columns = _columns({"native": native, "ours": ours}, 1)
            ratio = summary([a / b for a, b in both])
            rows.append({"what": f"{library}: {name}", **columns, "ratio": ratio})
    rows.sort(key=lambda row: row["ratio"]["median"])
    for row in rows:
        click.echo(
            f"{row['ratio']['median']:5.2f}× {row['native']['median']:9.1f} µs {row['what']}"
        )
    return rows


def _in_turn(
    library: str, names: list[str], rounds: int, seconds: float
) -> list[list[tuple[float, float]]]:
    """Seconds of patterns natively and by `mixpert run`, in one process each, for each round."""
    given = [patterns.__file__, library, str(seconds), str(rounds), *names]
    with ExitStack() as stack:
        native, ours = (
            stack.enter_context(Popen([*way, *given], stdin=PIPE, stdout=PIPE, text=True))
            for way in COMMANDS.values()
        )
        return [[(_next(native), _next(ours)) for _ in range(rounds)] for _ in names]


def _next(process: "Popen[str]") -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


@click.command()
@click.option("--sweep", "words", metavar="WORDS", help="Patterns whose names have these words.")
@click.option("--rounds", default=15, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=0.02, show_default=True, help="Of a pattern in a round.")
@machine.save_option
def command(words: str | None, rounds: int, seconds: float, save: bool) -> None:
    """Measure what calls cost on the host, those that pass through and emulated ones.

    `--sweep ""` measures patterns of whole programs instead, on a GPU.
    """
    if words is not None:
        facts = machine.facts_of_gpu()
        rows = sweep(words, rounds, seconds)
        machine.finish("sweep", {"machine": facts, "rows": rows}, save, sweep_sentence)
        return
    measured = measure()
    on_gpu = "emulated" in measured
    result = {"machine": machine.facts_of_gpu() if on_gpu else machine.machine(), **measured}
    machine.finish("dispatch-gpu" if on_gpu else "dispatch", result, save, markdown)


if __name__ == "__main__":
    main(command, "python -m tests.benchmarks.dispatch")
