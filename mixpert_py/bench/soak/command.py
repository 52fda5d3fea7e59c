"""`mixpert bench soak GATE`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mixpert_py.bench import machine
from mixpert_py.bench.products.command import KINDS

if TYPE_CHECKING:
    from mixpert_py.bench.soak.verdict import Verdict

Chosen = click.Choice(["cuda", "reference"])
SAVE = click.option("--save", is_flag=True, help="Keep the verdict beside the code.")
STATE = click.option("--state", "state_path", metavar="FILE", help="Go on where FILE says.")


@click.group("soak")
def bench_soak() -> None:
    """Gates that a release has to pass; exit code 1 where one is not.

    A verdict in one line on stderr, and as JSON on stdout.
    """


def _end(verdict: "Verdict", save: bool) -> int:
    from mixpert_py.bench.soak.verdict import keep

    record = verdict.record()
    if save:
        keep(record)
    click.echo(str(verdict), err=True)
    click.echo(json.dumps(record, indent=2, ensure_ascii=False))
    return int(not verdict.passed)


def _say(line: str) -> None:
    click.echo(line, err=True)


@bench_soak.command("products")
@click.option("--backend", type=Chosen, default="cuda", show_default=True)
@click.option("--count", default=100_000, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=540.0, show_default=True, help="At most, in this call.")
@click.option("--largest", default=4096, show_default=True, type=click.IntRange(1))
@KINDS
@STATE
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1))
@SAVE
def soak_products(
    backend: str,
    count: int,
    seconds: float,
    largest: int,
    kinds: int,
    state_path: str | None,
    workers: int,
    save: bool,
) -> int:
    """Random products against FP64.

    None is further off than its scheme states. FILE may be that of `mixpert bench products`.
    """
    from mixpert_py.bench.products import sweep
    from mixpert_py.bench.soak import products

    path = Path(state_path) if state_path else None
    state = sweep.load(path, backend, largest, kinds)
    _require(backend)
    judge = sweep.one_by_one(backend, largest, workers, kinds)
    sweep.sweep(judge, state, count, seconds, path, _say)
    return _end(products.verdict(state, count), save)


@bench_soak.command("load")
@click.option("--backend", type=Chosen, default="cuda", show_default=True)
@click.option("--seconds", default=540.0, show_default=True, type=click.FloatRange(2))
@click.option("--window", default=60.0, show_default=True, help="Seconds that are compared.")
@STATE
@SAVE
def soak_load(
    backend: str, seconds: float, window: float, state_path: str | None, save: bool
) -> int:
    """As fast after minutes of full load.

    With the same memory, too. With FILE a verdict on this stretch and those before.
    """
    from mixpert_py.bench.soak import load

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


@bench_soak.command("threads")
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
    from mixpert_py.bench.products import backend as backends
    from mixpert_py.bench.soak import threads as gate

    chosen = backends.backend(backend)
    largest = largest or (1024 if backend == "cuda" else 96)
    found = gate.gate(chosen, threads, count, different, seconds, largest, _say, kinds)
    return _end(found, save)


@bench_soak.command("streams")
@click.option("--streams", default=8, show_default=True, type=click.IntRange(2))
@click.option("--rounds", default=100, show_default=True, type=click.IntRange(1))
@click.option("--size", default=768, show_default=True, type=click.IntRange(1))
@SAVE
def soak_streams(streams: int, rounds: int, size: int, save: bool) -> int:
    """Operands written late on streams (GPU).

    No product is of what they were before.
    """
    from mixpert_py.bench.soak import streams as gate

    return _end(gate.gate(machine.gpu(), streams, rounds, size), save)


@bench_soak.command("memory")
@click.option("--size", default=1024, show_default=True, type=click.IntRange(1))
@SAVE
def soak_memory(size: int, save: bool) -> int:
    """Allocations that fail (GPU).

    Every one once: a right product or a MemoryError, and nothing leaks.
    """
    from mixpert_py.bench.soak import memory

    cupy = machine.gpu()
    with memory.CupyAllocator(cupy).installed() as allocator:
        return _end(memory.gate(allocator, memory.products(cupy, size), _say), save)


@bench_soak.command("plans")
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
    configuration. Each is what it should be, or an error of one line that says what is wrong,
    within a second and 256 MiB.
    """
    from mixpert_py.bench.soak import plans
    from mixpert_py.bench.soak.kinds import KINDS

    if unknown := set(kinds).difference(KINDS):
        known = ", ".join(KINDS)
        raise click.UsageError(f"no kind {unknown.pop()!r}; choose from: {known}")
    path = Path(state_path) if state_path else None
    return _end(plans.gate(count, seconds, seed, _say, kinds or tuple(KINDS), path), save)


@bench_soak.command("planted")
@SAVE
def soak_planted(save: bool) -> int:
    """Files planted in the caches.

    What another user could have written is not taken.
    """
    from mixpert_py.bench.soak import planted

    return _end(planted.gate(), save)


@bench_soak.command("cold")
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
    from mixpert_py.bench.soak import cold

    _require(backend)
    return _end(cold.gate(backend, processes, seconds), save)


def _require(backend: str) -> None:
    """Raise DeviceError where a gate is to run on a GPU, and none is there."""
    if backend == "cuda":
        machine.gpu()
