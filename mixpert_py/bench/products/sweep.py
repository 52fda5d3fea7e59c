"""`mixpert bench products`: random products, each held against what its scheme states."""

import json
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from time import monotonic

from mixpert_py import files
from mixpert_py.bench.products.case import draw
from mixpert_py.bench.products.examine import Outcome, examine_seed
from mixpert_py.errors import MixPertError

WRITE_EVERY = 10.0  # seconds
PATIENCE = 120.0  # seconds, of which compiling a new kernel takes some
AHEAD = 16  # products that wait for each worker, while the first of all still compiles
GIVE_UP = 25  # failures in a row: a device that is lost fails every product after it


@dataclass(slots=True)
class State:
    """How far a sweep has come: seeds below `next` are done. kinds: as `case.draw` takes it.

    ran: how often what made the product. failures: "case: what", one for each failed product.
    """

    backend: str
    largest: int
    next: int = 0
    seconds: float = 0.0
    ran: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    kinds: int = 0


def load(path: Path | None, backend: str, largest: int, kinds: int = 0) -> State:
    """The state in a file, or a new one. Raises MixPertError for one of another sweep."""
    if path is None or not path.exists():
        return State(backend, largest, kinds=kinds)
    try:
        record = json.loads(path.read_text("utf-8"))
        found = State(**record)
    except (ValueError, TypeError) as error:
        raise MixPertError(f"{path}: not a state of `mixpert bench products`") from error
    if (found.backend, found.largest, found.kinds) != (backend, largest, kinds):
        kind = f", {found.kinds} kinds" if found.kinds else ""
        raise MixPertError(
            f"{path}: of a sweep on {found.backend} up to {found.largest}{kind}; give another file"
        )
    return found


def sweep(
    examine: Callable[[Iterator[int]], Iterator[Outcome]],
    state: State,
    count: int,
    seconds: float,
    path: Path | None,
    say: Callable[[str], None],
    clock: Callable[[], float] = monotonic,
) -> None:
    """Go on until `count` products are done in all, or `seconds` are over in this call.

    examine: the outcomes of seeds, in their order.
    """
    start = written = clock()
    before, failing = state.seconds, 0
    seeds = takewhile(lambda _: clock() - start < seconds, range(state.next, count))
    for outcome in examine(seeds):
        state.ran[outcome.ran] = state.ran.get(outcome.ran, 0) + 1
        failing = failing + 1 if outcome.failures else 0
        if outcome.failures:
            line = f"{draw(state.next, state.largest, state.kinds)}: {'; '.join(outcome.failures)}"
            state.failures.append(line)
            say(line)
        state.next += 1
        state.seconds = before + clock() - start
        if clock() - written > WRITE_EVERY:
            write(state, path)
            written = clock()
        if failing == GIVE_UP:
            say(f"{GIVE_UP} products failed in a row: given up")
            break
    write(state, path)


def one_by_one(
    backend: str, largest: int, workers: int, kinds: int = 0
) -> Callable[[Iterator[int]], Iterator[Outcome]]:
    """Examine seeds in this process, or in several: compiling kernels is most of a first sweep."""
    work = partial(examine_seed, backend, largest=largest, kinds=kinds)
    if workers == 1:
        return lambda seeds: map(work, seeds)
    return lambda seeds: in_processes(work, seeds, workers)


def in_processes(
    work: Callable[[int], Outcome], seeds: Iterator[int], workers: int, patience: float = PATIENCE
) -> Iterator[Outcome]:
    """The outcomes of seeds in their order, from several processes.

    work: what a process can import. patience: seconds after which a product that has not come has
    failed: its process is ended, and with it those of the others, which begin again.
    """

    def started() -> ProcessPoolExecutor:
        # CUDA does not survive a fork.
        return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))

    pool = started()
    running: deque[tuple[int, Future[Outcome]]] = deque()

    def next_outcome() -> Outcome:
        nonlocal pool
        _, future = running.popleft()
        try:
            return future.result(timeout=patience)
        except TimeoutError:
            _end(pool)
            pool = started()
            for i, (seed, other) in enumerate(running):
                if not other.done() or other.exception() is not None:
                    running[i] = seed, pool.submit(work, seed)
            return Outcome("failed", [f"no product after {patience:g} s"])

    try:
        for seed in seeds:
            running.append((seed, pool.submit(work, seed)))
            if len(running) > AHEAD * workers:
                yield next_outcome()
        while running:
            yield next_outcome()
    except BrokenProcessPool as error:
        raise MixPertError("a process of the sweep died; --workers 1 shows where") from error
    finally:
        _end(pool)


def _end(pool: ProcessPoolExecutor) -> None:
    """At once, whatever its processes wait for."""
    for process in list((pool._processes or {}).values()):
        process.kill()
    pool.shutdown(cancel_futures=True)


def write(state: State, path: Path | None) -> None:
    """Keep the state in its file."""
    if path is not None:
        text = json.dumps(asdict(state), indent=1, ensure_ascii=False) + "\n"
        files.replace(path, text.encode())
