"""A sweep over random products, each held against what its scheme states."""

import json
import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from time import monotonic

from mixpert_py import config, files
from mixpert_py.errors import MixPertError
from tests.soak.random_products import case, examine, examine_pair, pair
from tests.soak.random_products.examine import Margin, Outcome
from tests.soak.verdict import Verdict

WRITE_EVERY = 10.0  # seconds
PATIENCE = 120.0  # seconds, of which compiling a new kernel takes some
AHEAD = 16  # products that wait for each worker, while the first of all still compiles
GIVE_UP = 25  # failures in a row: a device that is lost fails every product after it


@dataclass(slots=True)
class State:
    """The progress of a sweep: seeds below `next` are done. kinds: as `case.draw` takes it.

    ran: how often what made the product. failures: "case: what", one for each failed product.
    contract: of pairs of families, see `pair`, held against the bound of `faithful`; then elements:
    that were held against it; ratios: of the families of A and B, the largest error over what is
    allowed; nearest: the seed where that is.
    """

    backend: str
    largest: int
    next: int = 0
    seconds: float = 0.0
    ran: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    kinds: int = 0
    contract: bool = False
    elements: int = 0
    ratios: dict[str, float] = field(default_factory=dict)
    nearest: dict[str, int] = field(default_factory=dict)

    def product(self, seed: int) -> case.Case | pair.Pair:
        """The product that the sweep draws from a seed."""
        if self.contract:
            return pair.draw(seed, self.largest)
        return case.draw(seed, self.largest, self.kinds)

    def add_margin(self, margin: Margin) -> None:
        """Count the elements of product `next`, and keep its margin if it is the narrowest."""
        self.elements += margin.elements
        if margin.ratio >= self.ratios.get(margin.families, 0.0):
            self.ratios[margin.families] = margin.ratio
            self.nearest[margin.families] = self.next


def load(
    path: Path | None, backend: str, largest: int, kinds: int = 0, contract: bool = False
) -> State:
    """The state in a file, or a new one. Raises MixPertError for one of another sweep."""
    if path is None or not path.exists():
        return State(backend, largest, kinds=kinds, contract=contract)
    try:
        record = json.loads(path.read_text("utf-8"))
        found = State(**record)
    except (ValueError, TypeError) as error:
        raise MixPertError(f"{path}: not a state of `python -m tests.soak products`") from error
    wanted = backend, largest, kinds, contract
    if (found.backend, found.largest, found.kinds, found.contract) != wanted:
        kind = f", {found.kinds} kinds" if found.kinds else ""
        kind += ", of the contract" if found.contract else ""
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
    report: Callable[[str], None],
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
            line = f"{state.product(state.next)}: {'; '.join(outcome.failures)}"
            state.failures.append(line)
            report(line)
        if outcome.margin is not None:
            state.add_margin(outcome.margin)
        state.next += 1
        state.seconds = before + clock() - start
        if clock() - written > WRITE_EVERY:
            write(state, path)
            written = clock()
        if failing == GIVE_UP:
            report(f"{GIVE_UP} products failed in a row: given up")
            break
    write(state, path)


def one_by_one(
    backend: str, largest: int, workers: int, kinds: int = 0, contract: bool = False
) -> Callable[[Iterator[int]], Iterator[Outcome]]:
    """Examine seeds in this process, or in several: compiling kernels is most of a first sweep."""
    work = (
        partial(examine_pair.examine_seed, backend, largest=largest)
        if contract
        else partial(examine.examine_seed, backend, largest=largest, kinds=kinds)
    )
    if workers == 1:
        return lambda seeds: map(work, seeds)
    return lambda seeds: in_processes(work, seeds, workers)


def in_processes(
    work: Callable[[int], Outcome], seeds: Iterator[int], workers: int, patience: float = PATIENCE
) -> Iterator[Outcome]:
    """The outcomes of seeds in their order, from several processes, which share the cores.

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

    with _blas_threads_shared(workers):
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


@contextmanager
def _blas_threads_shared(workers: int) -> Iterator[None]:
    """Let BLAS have, in each process that is started inside, its share of the cores.

    Every one would start a thread for each core, and all would wait for one another: two processes
    on two cores were found to take seven times as long.
    """
    before = config.environment()
    shared = config.child_environment(config.blas_threads(workers))
    config.restore_environment({os.fsencode(name): os.fsencode(shared[name]) for name in shared})
    try:
        yield
    finally:
        config.restore_environment(before)


def _end(pool: ProcessPoolExecutor) -> None:
    """End the pool at once, whatever its processes wait for."""
    for process in list((pool._processes or {}).values()):
        process.kill()
    pool.shutdown(cancel_futures=True)


def write(state: State, path: Path | None) -> None:
    """Write the state to its file."""
    if path is not None:
        text = json.dumps(asdict(state), indent=1, ensure_ascii=False) + "\n"
        files.replace(path, text.encode())


def verdict(state: State, count: int) -> Verdict:
    """The verdict on a sweep that is to have made `count` products."""
    passed = not state.failures and state.next >= count
    of = "" if state.next >= count else f" (of {count:,})"
    on_gpu, failed = state.backend == "cuda", len(state.failures)
    figures = {
        "ran": dict(sorted(state.ran.items(), key=lambda item: -item[1])),
        "seconds": round(state.seconds),
        "largest": state.largest,
        "kinds": state.kinds,
        "failures": state.failures[:20],
    }
    if state.contract:
        largest = max(state.ratios.values(), default=0.0)
        done = (
            f"{state.next:,} random products{of} of {len(state.ratios):,} pairs of families, "
            f"{state.elements:,} elements against the bound of `faithful`"
        )
        found = f"{failed} beyond it, the largest error {largest:.3f} of what is allowed"
        return Verdict("contract", done, found, passed, on_gpu, figures)
    emulated = sum(times for name, times in state.ran.items() if not name.startswith("native"))
    done = (
        f"{state.next:,} random products"
        + (f" of {state.kinds} kinds" if state.kinds else "")
        + f", {emulated:,} of them emulated, against FP64{of}"
    )
    return Verdict(
        "products", done, f"{failed} beyond the bound of their scheme", passed, on_gpu, figures
    )
