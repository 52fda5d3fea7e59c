"""`mixpert bench products` on the command line."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from mixpert_py.bench.products.sweep import State

LARGEST = 4096
LARGEST_OF_PAIRS = 512
NEAREST = 5  # pairs of families that are named

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
@click.option(
    "--largest",
    type=click.IntRange(1),
    help=f"Dimension. Default: {LARGEST}, with --contract {LARGEST_OF_PAIRS}.",
)
@KINDS
@click.option("--state", "state_path", metavar="FILE", help="Go on where FILE says.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1))
@click.option("--seed", type=click.IntRange(0), help="This product alone, failed or not.")
@click.option("--contract", is_flag=True, help="Pairs of families, under `faithful` and its bound.")
def bench_products(
    backend: str,
    count: int,
    seconds: float,
    largest: int | None,
    kinds: int,
    state_path: str | None,
    workers: int,
    seed: int | None,
    contract: bool,
) -> int:
    """Random products, each held against what its scheme states.

    Exit code 1 if one fails. Shapes at and beside multiples of tiles, every layout in memory,
    family of operands, type and scheme; complex operands, NaN, Inf and overflow now and then.
    Against FP64: the certificate, what slices lost, and what was made of them. Complex products
    also against those of their parts.

    With --contract: A of one family and B of another, rows, columns and K scaled by powers of ten
    up to 1e±8, in every layout, and every element of their `faithful` product against the bound
    that it states, on a GPU half of them prepared as large products are.
    """
    from mixpert_py.bench.products import backend as backends
    from mixpert_py.bench.products import sweep

    if contract and kinds:
        raise click.UsageError("--kinds is of schemes, --contract of one of them")
    largest = largest or (LARGEST_OF_PAIRS if contract else LARGEST)
    path = Path(state_path) if state_path else None
    state = sweep.load(path, backend, largest, kinds, contract)
    backends.backend(backend)
    if seed is not None:
        (outcome,) = sweep.one_by_one(backend, largest, 1, kinds, contract)(iter([seed]))
        click.echo(state.product(seed))
        said = "; ".join(outcome.failures) or "holds"
        if outcome.margin is not None:
            said += f", at most {outcome.margin.ratio:.3f} of what is allowed"
        click.echo(f"ran {outcome.ran}: {said}")
        return int(bool(outcome.failures))
    judge = sweep.one_by_one(backend, largest, workers, kinds, contract)
    sweep.sweep(judge, state, count, seconds, path, click.echo)
    click.echo(
        f"{state.next} of {count} products in {state.seconds:.0f} s, {len(state.failures)} failed"
    )
    for name, times in sorted(state.ran.items(), key=lambda item: -item[1]):
        click.echo(f"{times:6} {name}")
    for line in _margins(state):
        click.echo(line)
    return int(bool(state.failures))


def _margins(state: "State") -> Iterator[str]:
    """How near the products of pairs came to their bound."""
    if not state.ratios:
        return
    worst = sorted(state.ratios.items(), key=lambda item: -item[1])
    yield (
        f"{state.elements:,} elements of {len(state.ratios)} pairs of families, the largest error "
        f"{worst[0][1]:.3f} of what is allowed"
    )
    for families, ratio in worst[:NEAREST]:
        yield f"{ratio:6.3f} {families} (seed {state.nearest[families]})"
