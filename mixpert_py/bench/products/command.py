"""`mixpert bench products` on the command line."""

from pathlib import Path

import click

KINDS = click.option(
    "--kinds",
    default=0,
    type=click.IntRange(0),
    help="Draw from so many schemes with types and layouts, each kernels to compile.",
)


@click.command("products")
@click.option(
    "--backend", type=click.Choice(["cuda", "reference"]), default="cuda", show_default=True
)
@click.option("--count", default=10_000, show_default=True, help="Products in all.")
@click.option("--seconds", default=540.0, show_default=True, help="At most, in this call.")
@click.option("--largest", default=4096, show_default=True, type=click.IntRange(1))
@KINDS
@click.option("--state", "state_path", metavar="FILE", help="Go on where FILE says.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1))
@click.option("--seed", type=click.IntRange(0), help="This product alone, failed or not.")
def bench_products(
    backend: str,
    count: int,
    seconds: float,
    largest: int,
    kinds: int,
    state_path: str | None,
    workers: int,
    seed: int | None,
) -> int:
    """Random products, each held against what its scheme states.

    Exit code 1 if one fails. Shapes at and beside multiples of tiles, every layout in memory,
    family of operands, type and scheme; complex operands, NaN, Inf and overflow now and then.
    Against FP64: the certificate, what slices lost, and what was made of them. Complex products
    also against those of their parts.
    """
    from mixpert_py.bench.products import backend as backends
    from mixpert_py.bench.products import case, examine, sweep

    path = Path(state_path) if state_path else None
    state = sweep.load(path, backend, largest, kinds)
    backends.backend(backend)
    if seed is not None:
        ran, failures = examine.examine_seed(backend, seed, largest, kinds)
        click.echo(case.draw(seed, largest, kinds))
        click.echo(f"ran {ran}: {'; '.join(failures) or 'holds'}")
        return int(bool(failures))
    judge = sweep.one_by_one(backend, largest, workers, kinds)
    sweep.sweep(judge, state, count, seconds, path, click.echo)
    click.echo(
        f"{state.next} of {count} products in {state.seconds:.0f} s, {len(state.failures)} failed"
    )
    for name, times in sorted(state.ran.items(), key=lambda item: -item[1]):
        click.echo(f"{times:6} {name}")
    return int(bool(state.failures))
