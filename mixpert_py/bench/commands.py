"""`mixpert bench`: the measurements that a user may want to repeat, and the tables made of them."""

import json
from pathlib import Path
from typing import Any

import click

from mixpert_py.bench.apps.command import bench_apps
from mixpert_py.bench.gemm.command import bench_gemm
from mixpert_py.commands.program import ScriptCommand, complete_files, script_or_notebook


@click.group()
def bench() -> None:
    """Measure what the pages say about speed."""


bench.add_command(bench_apps)
bench.add_command(bench_gemm)


@bench.command("dispatch")
@click.option("--save", is_flag=True, help="Keep the result beside the code.")
def bench_dispatch(save: bool) -> None:
    """Measure what calls cost on the host, those that pass through and emulated ones."""
    from mixpert_py.bench import dispatch, machine

    found = dispatch.measure()
    on_gpu = "emulated" in found
    facts = machine.device(machine.gpu()) if on_gpu else None
    finished = machine.finish("dispatch-gpu" if on_gpu else "dispatch", found, save, facts)
    click.echo(dispatch.table(finished))


@bench.command("program", cls=ScriptCommand)
@click.option(
    "--plan",
    "plan_path",
    metavar="PLAN",
    shell_complete=complete_files,
    help="Default: SCRIPT.mixpert.toml.",
)
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(1))
@click.option("--save", is_flag=True, help="Keep the result beside the code.")
@click.argument("script", metavar="SCRIPT", shell_complete=complete_files)
@click.argument(
    "arguments", nargs=-1, type=click.UNPROCESSED, metavar="ARGS…", shell_complete=complete_files
)
def bench_program(
    plan_path: str | None, rounds: int, save: bool, script: str, arguments: tuple[str, ...]
) -> None:
    """A program as it was against the same under its plan."""
    from mixpert_py import config
    from mixpert_py.bench import machine, program

    plan = config.load_plan(plan_path or config.plan_beside(script))
    result = program.measure(script_or_notebook(script, arguments), plan, rounds)
    _show(machine.finish(Path(script).stem, result, save))


@bench.command("readme")
@click.option(
    "--into",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="README",
    help="Put them there and into docs/measured.md beside it, where their marks are.",
)
def bench_readme(path: Path | None) -> None:
    """The tables and pictures of the pages, made from kept results."""
    from mixpert_py.bench import readme

    if path is None:
        click.echo("\n".join(readme.parts().values()), nl=False)
    else:
        readme.update(path)


def _show(result: dict[str, Any]) -> None:
    click.echo(json.dumps(result, indent=2, ensure_ascii=False))
