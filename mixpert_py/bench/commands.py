"""`mixpert bench`: a command for every number in the README and in docs/measured.md."""

import json
from pathlib import Path
from typing import Any

import click

from mixpert_py.bench.apps.command import bench_apps
from mixpert_py.bench.gemm.command import bench_gemm
from mixpert_py.bench.papers.command import bench_papers
from mixpert_py.bench.products.command import bench_products
from mixpert_py.bench.soak.command import bench_soak
from mixpert_py.commands.program import TuningCommand


@click.group()
def bench() -> None:
    """Measure what the README says about speed."""


for command in (bench_apps, bench_gemm, bench_papers, bench_products, bench_soak):
    bench.add_command(command)


@bench.command("dispatch")
@click.option("--save", is_flag=True, help="Keep the result beside the code.")
def bench_dispatch(save: bool) -> None:
    """A call that passes through, against the native one."""
    from mixpert_py.bench import dispatch, machine

    _show(machine.finish("dispatch", dispatch.measure(), save))


@bench.command("reference")
@click.option("--size", default=1024, show_default=True)
@click.option("--scheme", "schemes", multiple=True, default=("int8x6",), show_default=True)
@click.option("--save", is_flag=True, help="Keep the result beside the code.")
def bench_reference(size: int, schemes: tuple[str, ...], save: bool) -> None:
    """The reference backend against a float32 product."""
    from mixpert_py.bench import machine, reference

    _show(machine.finish("reference", reference.measure(size, schemes), save))


@bench.command("program", cls=TuningCommand)
@click.option("--plan", "plan_path", metavar="PLAN", help="Default: SCRIPT.mixpert.toml.")
@click.option("--rounds", default=7, show_default=True)
@click.option("--save", is_flag=True, help="Keep the result beside the code.")
@click.argument("script", metavar="SCRIPT")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="ARGS…")
def bench_program(
    plan_path: str | None, rounds: int, save: bool, script: str, arguments: tuple[str, ...]
) -> None:
    """A program as it was against the same under its plan."""
    from mixpert_py import config
    from mixpert_py.bench import machine, program
    from mixpert_py.launch import launcher

    plan = config.load_plan(plan_path or config.plan_beside(script))
    result = program.measure(launcher.script(script, arguments), plan, rounds)
    _show(machine.finish(Path(script).stem, result, save))


@bench.command("rewrite")
@click.option("-j", "jobs", default=2, show_default=True, type=click.IntRange(1), metavar="N")
@click.option("--save", is_flag=True, help="Keep the result beside the code.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
def bench_rewrite(jobs: int, save: bool, paths: tuple[str, ...]) -> None:
    """Whole projects rewritten in memory: time and peak memory."""
    from mixpert_py.bench import machine, rewriting

    _show(machine.finish("rewrite", rewriting.measure(paths, jobs), save))


@bench.command("start-up")
@click.option("--rounds", default=15, show_default=True, type=click.IntRange(1))
@click.option("--save", is_flag=True, help="Keep the result beside the code.")
def bench_start_up(rounds: int, save: bool) -> None:
    """What an import adds to NumPy's, and `mixpert run` to `python`."""
    from mixpert_py.bench import machine, start_up

    _show(machine.finish("start-up", start_up.measure(rounds), save))


@bench.command("search")
@click.option("--samples", default="samples", show_default=True, metavar="FOLDER")
@click.option(
    "--hold-outs", default=0, metavar="N", help="Instead: N random tunings, each with a hold-out."
)
@click.option("--save", is_flag=True, help="Keep the result beside the code.")
def bench_search(samples: str, hold_outs: int, save: bool) -> None:
    """What the tuner's searches save on samples, in how many runs."""
    from pathlib import Path

    from mixpert_py.bench import machine, searches

    def say(line: str) -> None:
        click.echo(line, err=True)

    if hold_outs:
        found = searches.hold_outs(Path(samples), hold_outs, say=say)
        _show(machine.finish("hold-outs", found, save))
    else:
        found = searches.measure(Path(samples), say=say)
        _show(machine.finish("search", found, save))


@bench.command("model")
@click.option("--save", is_flag=True, help="Keep the result beside the code.")
def bench_model(save: bool) -> None:
    """Predicted times and chosen tiles against measured ones."""
    from mixpert_py.bench import machine, predictions

    found = predictions.measure(say=lambda line: click.echo(line, err=True))
    _show({**machine.finish("model", found, save), "rows": len(found["rows"])})


@bench.command("scaling")
@click.option(
    "--gpus",
    "counts",
    type=click.IntRange(1),
    multiple=True,
    metavar="N",
    help="So many, several times; the first is compared with. Default: 1, 2, 4 of those here.",
)
@click.option("--size", default=16384, show_default=True, type=click.IntRange(1))
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(1))
@click.option("--save", is_flag=True, help="Keep the result beside the code.")
def bench_scaling(counts: tuple[int, ...], size: int, rounds: int, save: bool) -> int:
    """The same products on each of 1, 2, 4 GPUs.

    A process each; copies of the host are included. Exit code 1 where an efficiency is below 0.85.
    """
    from mixpert_py.bench import machine, scaling
    from mixpert_py.execution import gpus

    cupy = machine.gpu()
    names = gpus.names("cuda")
    counts = counts or tuple(count for count in (1, 2, 4) if count <= len(names))

    def say(line: str) -> None:
        click.echo(line, err=True)

    result = scaling.measure(names, counts, size, rounds, say=say)
    result = machine.finish("scaling", result, save, machine.device(cupy))
    click.echo("\n".join(scaling.lines(result)))
    return int(not result["met"])


@bench.command("readme")
@click.option(
    "--into",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="README",
    help="Put them there and into docs/measured.md beside it, where their marks are.",
)
def bench_readme(path: Path | None) -> None:
    """The README's tables and pictures, made from kept results."""
    from mixpert_py.bench import readme

    if path is None:
        click.echo("\n".join(readme.parts().values()), nl=False)
    else:
        readme.update(path)


def _show(result: dict[str, Any]) -> None:
    click.echo(json.dumps(result, indent=2, ensure_ascii=False))
