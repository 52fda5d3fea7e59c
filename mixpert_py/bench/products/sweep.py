"""`mixpert bench products`: random products, each held against what its scheme states."""

import json
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from pathlib import Path
from time import monotonic

from mixpert_py import files
from mixpert_py.bench.products.case import draw
from mixpert_py.bench.products.examine import Outcome, examine_seed
from mixpert_py.errors import MixPertError

WRITE_EVERY = 10.0  # seconds
GIVE_UP = 25  # failures in a row: a device that is lost fails every product after it


@dataclass(slots=True)
class State:
    """How far a sweep has come: seeds below `next` are done.

    ran: how often what made the product. failures: "case: what", one for each failed product.
    """

    backend: str
    largest: int
    next: int = 0
    seconds: float = 0.0
    ran: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def load(path: Path | None, backend: str, largest: int) -> State:
    """The state in a file, or a new one. Raises MixPertError for one of another sweep."""
    if path is None or not path.exists():
        return State(backend, largest)
    try:
        record = json.loads(path.read_text("utf-8"))
        found = State(**record)
    except (ValueError, TypeError) as error:
        raise MixPertError(f"{path}: not a state of `mixpert bench products`") from error
    if (found.backend, found.largest) != (backend, largest):
        raise MixPertError(
            f"{path}: of a sweep on {found.backend} up to {found.largest}; give another file"
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
            line = f"{draw(state.next, state.largest)}: {'; '.join(outcome.failures)}"
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
    backend: str, largest: int, workers: int
) -> Callable[[Iterator[int]], Iterator[Outcome]]:
    """Examine seeds in this process, or in several: compiling kernels is most of a first sweep."""

    def here(seeds: Iterator[int]) -> Iterator[Outcome]:
        return (examine_seed(backend, seed, largest) for seed in seeds)

    def elsewhere(seeds: Iterator[int]) -> Iterator[Outcome]:
        # CUDA does not survive a fork.
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
        running: deque[Future[Outcome]] = deque()
        try:
            for seed in seeds:
                running.append(pool.submit(examine_seed, backend, seed, largest))
                if len(running) > 3 * workers:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        except BrokenProcessPool as error:
            raise MixPertError("a process of the sweep died; --workers 1 shows where") from error
        finally:
            pool.shutdown(cancel_futures=True)

    return here if workers == 1 else elsewhere


def write(state: State, path: Path | None) -> None:
    """Keep the state in its file."""
    if path is not None:
        text = json.dumps(asdict(state), indent=1, ensure_ascii=False) + "\n"
        files.replace(path, text.encode())
