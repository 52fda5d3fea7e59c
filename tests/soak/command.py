"""`python -m tests.soak GATE` on the command line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mixpert_py.bench import machine

if TYPE_CHECKING:
    from tests.soak.random_products.sweep import State
    from tests.soak.verdict import Verdict

LARGEST = 4096
LARGEST_OF_PAIRS = 512
NEAREST = 5  # pairs of families that are named

Chosen = click.Choice(["cuda", "reference"])
SAVE = click.option("--save", is_flag=True, help="Store the verdict for docs/measured.md.")
STATE = click.option("--state", "state_path", metavar="FILE", help="Continue the sweep in FILE.")
KINDS = click.option(
    "--kinds",
    default=0,
    type=click.IntRange(0),
    help="Draw from so many schemes with types and layouts, each kernels to compile.",
)


@click.group("soak", context_settings={"help_option_names": ["-h", "--help"]})
def soak() -> None:
    """Gates that a release has to pass; exit code 1 where one is not.

    A verdict in one line on stderr, and as JSON on stdout.
    """


def _end(verdict: "Verdict", save: bool) -> int:
    from tests.soak.verdict import keep

    record = verdict.record()
    if save:
        keep(record)
    click.echo(str(verdict), err=True)
    click.echo(json.dumps(record, indent=2, ensure_ascii=False))
    return int(not verdict.passed)


def _report(line: str) -> None:
    click.echo(line, err=True)


@soak.command("products")
@click.option("--backend", type=Chosen, default="cuda", show_default=True)
@click.option("--count", default=100_000, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=540.0, show_default=True, help="At most, in this call.")
@click.option(
    "--largest",
    type=click.IntRange(1),
    help=f"Dimension. Default: {LARGEST}, with --contract {LARGEST_OF_PAIRS}.",
)
@KINDS
@STATE
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1))
@click.option("--seed", type=click.IntRange(0), help="This product alone, failed or not.")
@click.option("--contract", is_flag=True, help="Pairs of families, under `faithful` and its bound.")
@SAVE
def soak_products(
    backend: str,
    count: int,
    seconds: float,
    largest: int | None,
    kinds: int,
    state_path: str | None,
    workers: int,
    seed: int | None,
    contract: bool,
    save: bool,
) -> int:
    """Random products against FP64.

    None has a larger error than its scheme states. Shapes lie at and beside multiples of tiles;
    layouts in memory, families of operands, types and schemes are drawn at random; some operands
    are complex, some hold NaN or Inf, some products overflow. The certificate, the loss of the
    slices and the sums of their products are checked; of complex products also those of their
    parts.

    With --contract: A of one family and B of another, rows, columns and K scaled by powers of ten
    up to 1e±8, in every layout, and every element of their `faithful` product against the bound
    that it states; on a GPU half of them are prepared as large products are.
    """
    from tests.soak.random_products import sweep

    if contract and kinds:
        raise click.UsageError("--kinds draws schemes, and --contract has only one")
    largest = largest or (LARGEST_OF_PAIRS if contract else LARGEST)
    path = Path(state_path) if state_path else None
    state = sweep.load(path, backend, largest, kinds, contract)
    _require(backend)
    if seed is not None:
        return _one_product(state, seed)
    examine = sweep.one_by_one(backend, largest, workers, kinds, contract)
    sweep.sweep(examine, state, count, seconds, path, _report)
    for line in _margins(state):
        _report(line)
    return _end(sweep.verdict(state, count), save)


def _one_product(state: "State", seed: int) -> int:
    """Print what one seed of a sweep makes; the exit code, 1 where its product fails."""
    from tests.soak.random_products import sweep

    examine = sweep.one_by_one(state.backend, state.largest, 1, state.kinds, state.contract)
    (outcome,) = examine(iter([seed]))
    click.echo(state.product(seed))
    found = "; ".join(outcome.failures) or "holds"
    if outcome.margin is not None:
        found += f", at most {outcome.margin.ratio:.3f} of what is allowed"
    click.echo(f"ran {outcome.ran}: {found}")
    return int(bool(outcome.failures))


def _margins(state: "State") -> Iterator[str]:
    """Lines with the pairs of families whose products came nearest to their bound."""
    nearest = sorted(state.ratios.items(), key=lambda item: -item[1])
    for families, ratio in nearest[:NEAREST]:
        yield f"{ratio:6.3f} {families} (seed {state.nearest[families]})"


@soak.command("load")
@click.option("--backend", type=Chosen, default="cuda", show_default=True)
@click.option("--seconds", default=540.0, show_default=True, type=click.FloatRange(2))
@click.option("--window", default=60.0, show_default=True, help="Seconds that are compared.")
@STATE
@SAVE
def soak_load(
    backend: str, seconds: float, window: float, state_path: str | None, save: bool
) -> int:
    """Full load for minutes: speed and memory stay the same.

    With FILE, the verdict is on this stretch and those before.
    """
    from tests.soak import load

    if not 0 < window <= seconds / 3:
        raise click.UsageError("--window is to be a third of --seconds at most")
    _require(backend)
    on_gpu = backend == "cuda"
    facts = machine.device(machine.gpu()) if on_gpu else machine.machine()
    on = str(facts["device" if on_gpu else "cpu"])
    path = Path(state_path) if state_path else None
    stretches = load.load(path, on)
    work, memory = load.on_gpu(machine.gpu()) if on_gpu else load.on_host()
    stretches.append(load.stretch(work, memory, on, seconds, window))
    if path is not None:
        load.write(stretches, path)
    return _end(load.verdict(stretches, window, on_gpu), save)


@soak.command("threads")
@click.option("--backend", type=Chosen, default="cuda", show_default=True)
@click.option("--threads", default=32, show_default=True, type=click.IntRange(2))
@click.option("--count", default=1000, show_default=True, help="Products of each thread.")
@click.option("--different", default=250, show_default=True, help="Of these at random.")
@click.option("--seconds", default=450.0, show_default=True, help="At most; half of them alone.")
@click.option("--largest", type=click.IntRange(1), help="Default: 1024 on a GPU, else 96.")
@KINDS
@SAVE
def soak_threads(
    backend: str,
    threads: int,
    count: int,
    different: int,
    seconds: float,
    largest: int | None,
    kinds: int,
    save: bool,
) -> int:
    """Threads that multiply at once.

    Every product has the bits of the same made alone.
    """
    from tests.soak import threads as gate
    from tests.soak.random_products import backend as backends

    chosen = backends.backend(backend)
    largest = largest or (1024 if backend == "cuda" else 96)
    load = gate.Load(threads, count, different, largest, kinds)
    return _end(gate.gate(chosen, load, seconds, _report), save)


@soak.command("streams")
@click.option("--streams", default=8, show_default=True, type=click.IntRange(2))
@click.option("--rounds", default=100, show_default=True, type=click.IntRange(1))
@click.option("--size", default=768, show_default=True, type=click.IntRange(1))
@SAVE
def soak_streams(streams: int, rounds: int, size: int, save: bool) -> int:
    """Operands written late on streams (GPU).

    No product is of the values that they had before.
    """
    from tests.soak import streams as gate

    return _end(gate.gate(machine.gpu(), streams, rounds, size), save)


@soak.command("memory")
@click.option("--size", default=1024, show_default=True, type=click.IntRange(1))
@SAVE
def soak_memory(size: int, save: bool) -> int:
    """Allocations that fail (GPU).

    Every one once: a right product or a MemoryError, and nothing leaks.
    """
    from tests.soak import memory

    cupy = machine.gpu()
    with memory.CupyAllocator(cupy).installed() as allocator:
        return _end(memory.gate(allocator, memory.products(cupy, size), _report), save)


@soak.command("plans")
@click.option("--count", default=100_000, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=540.0, show_default=True, help="At most, in this call.")
@click.option("--seed", default=1, show_default=True)
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Default: all of them.")
@STATE
@SAVE
def soak_plans(
    count: int,
    seconds: float,
    seed: int,
    kinds: tuple[str, ...],
    state_path: str | None,
    save: bool,
) -> int:
    """Mutated files.

    COUNT of each KIND: plans, stores of trials, profiles, models of devices, notebooks and
    configuration. Each is read as a valid file, or refused with an error of one line,
    within a second and 256 MiB.
    """
    from tests.soak import plans
    from tests.soak.kinds import KINDS

    if unknown := set(kinds).difference(KINDS):
        known = ", ".join(KINDS)
        raise click.UsageError(f"no kind {unknown.pop()!r}; choose from: {known}")
    path = Path(state_path) if state_path else None
    return _end(plans.gate(count, seconds, seed, _report, kinds or tuple(KINDS), path), save)


@soak.command("planted")
@SAVE
def soak_planted(save: bool) -> int:
    """Files planted in the caches.

    Files that another user could have written are not used.
    """
    from tests.soak import planted

    return _end(planted.gate(), save)


@soak.command("cold")
@click.option("--backend", type=Chosen, default="cuda", show_default=True)
@click.option("--processes", default=64, show_default=True, type=click.IntRange(2))
@click.option(
    "--seconds", default=480.0, show_default=True, help="At most, and one more minute for the last."
)
@SAVE
def soak_cold(backend: str, processes: int, seconds: float, save: bool) -> int:
    """Cold starts of many processes at once.

    No error, no broken file in the caches.
    """
    from tests.soak import cold

    _require(backend)
    return _end(cold.gate(backend, processes, seconds), save)


def _require(backend: str) -> None:
    """Raise DeviceError where a gate is to run on a GPU and there is none."""
    if backend == "cuda":
        machine.gpu()
