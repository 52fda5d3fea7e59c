"""`mixpert bench`: a command for every number in the README."""

import json
from pathlib import Path
from typing import Any

import click

from mixpert_py.program_command import TuningCommand


@click.group()
def bench() -> None:
    """Measure what the README says about speed."""


@bench.command("dispatch")
@click.option("--save", is_flag=True, help="Keep the result beside the code.")
def bench_dispatch(save: bool) -> None:
    """A call that passes through, against the native one, on 8 × 8 arrays."""
    from mixpert_py.bench import dispatch, machine

    _show(machine.finish("dispatch", dispatch.measure(), save))


@bench.command("reference")
@click.option("--size", default=1024, show_default=True)
@click.option("--scheme", "schemes", multiple=True, default=("int8x6",), show_default=True)
@click.option("--save", is_flag=True, help="Keep the result beside the code.")
def bench_reference(size: int, schemes: tuple[str, ...], save: bool) -> None:
    """The reference backend against a float32 product of the same shape."""
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
    """A program as it was against the same under its plan: warm runs, in turn."""
    from mixpert_py import config, launcher
    from mixpert_py.bench import machine, program

    plan = config.load_plan(plan_path or config.plan_beside(script))
    result = program.measure(launcher.script(script, arguments), plan, rounds)
    _show(machine.finish(Path(script).stem, result, save))


def _show(result: dict[str, Any]) -> None:
    click.echo(json.dumps(result, indent=2, ensure_ascii=False))
