"""The command that says whether a plan still holds: `mixpert verify`."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from mixpert_py.program_command import ProgramCommand

if TYPE_CHECKING:
    from mixpert_py.verdict import Verdict


class _VerifyCommand(ProgramCommand):
    """Our options may stand before PLAN, before SCRIPT and right behind it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ours: list[str] = []
        words: list[str] = []
        rest = args
        for _ in ("PLAN", "SCRIPT"):
            count = self._ours(ctx, rest)
            ours += rest[:count]
            words += rest[count : count + 1]
            rest = rest[count + 1 :]
        count = self._ours(ctx, rest)
        words += rest[count:][rest[count : count + 1] == ["--"] :]
        return super().parse_args(ctx, [*ours, *rest[:count], "--", *words])


@click.command(cls=_VerifyCommand)
@click.option(
    "--error", "budget", type=float, metavar="BUDGET", help="Default: what the plan was made for."
)
@click.option(
    "--criterion",
    metavar="NAME",
    help="frobenius, max, max-relative, mred, or module:function; default: the plan's.",
)
@click.option(
    "--compare",
    multiple=True,
    metavar="VARIABLE|FILE.npy",
    help="What is compared; default: what was, when the plan was made.",
)
@click.option("--backend", metavar="NAME", help="Default: that of the plan, or automatic.")
@click.option("--time-limit", type=float, metavar="S", help="Seconds that one run may take.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
@click.argument("plan", metavar="PLAN")
@click.argument("script", metavar="SCRIPT")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="ARGS…")
def verify(
    budget: float | None,
    criterion: str | None,
    compare: tuple[str, ...],
    backend: str | None,
    time_limit: float | None,
    as_json: bool,
    plan: str,
    script: str,
    arguments: tuple[str, ...],
) -> int:
    """Measure again whether PLAN holds for SCRIPT: exit 0 if it does, 1 if not.

    SCRIPT runs natively and under the plan, in fresh processes. A plan holds if the error is within
    the budget and every call site of the plan is still there; whether it is still faster is said,
    too. The options may also stand right behind SCRIPT; what follows them, or `--`, is the
    program's.
    """
    from mixpert_py import config, launcher, tables
    from mixpert_py.budget import limits
    from mixpert_py.errors import PlanError
    from mixpert_py.runtime.in_force import require_backend
    from mixpert_py.verdict import Question, verdict

    if time_limit is not None and not time_limit > 0:
        raise click.UsageError(f"--time-limit is a number of seconds, not {time_limit}")
    loaded = config.load_plan(plan)
    try:
        allowed, metric = limits(loaded, budget, criterion)
    except PlanError as error:
        raise PlanError(f"{plan}: {error} (--error BUDGET)") from None
    if backend is None and loaded.provenance.backend in ("reference", "cuda"):
        backend = loaded.provenance.backend
    require_backend(backend)
    program = launcher.script(script, arguments)
    question = Question(allowed, metric, compare, backend, time_limit)
    with tables.progress(as_json) as show:
        found = verdict(program, loaded, question, show)
    if as_json:
        click.echo(json.dumps(_record(found), indent=2))
    else:
        click.echo("\n".join([f"{plan}: {_headline(found)}", *_details(found)]))
    return 0 if found.holds else 1


def _headline(found: "Verdict") -> str:
    from mixpert_py.tuner.report.unit import error_text

    holds = "holds" if found.holds else "does not hold"
    measured, question = found.verification, found.question
    if measured is None:
        return f"{holds}: {found.problem}"
    within = "within" if measured.error <= question.budget else "over"
    return (
        f"{holds}: {question.criterion} error {error_text(measured.error)}, {within} the budget "
        f"of {question.budget:g}, in {measured.worst!r}"
    )


def _details(found: "Verdict") -> list[str]:
    lines = [f"  {site}: not in the program any more" for site in found.stale]
    lines += [f"  {site}: never ran" for site in found.silent]
    for site, reasons in found.fallbacks.items():
        why = ", ".join(f"{reason} ({calls}×)" for reason, calls in reasons.items())
        lines.append(f"  {site}: not as planned: {why}")
    return [*lines, *_times(found)]


def _times(found: "Verdict") -> list[str]:
    from mixpert_py.tuner.report.unit import clock_unit

    measured = found.verification
    if measured is None:
        return []
    if not found.lowers:
        return ["  every product stays native"]
    if found.emulated:
        return ["  the schemes were emulated: their times say nothing"]
    products = clock_unit((measured.native_lowered,))
    whole = clock_unit((measured.native_seconds,))
    still = "" if found.faster else ": no longer faster"
    return [
        f"  lowered products {products.number(measured.native_lowered)} → "
        f"{products.quantity(measured.lowered)}{still}",
        f"  whole program {whole.number(measured.native_seconds)} → "
        f"{whole.quantity(measured.seconds)}, its own times vary by "
        f"{clock_unit((measured.spread,)).quantity(measured.spread)}",
    ]


def _record(found: "Verdict") -> dict[str, Any]:
    """The verdict as plain data for JSON; a number that is none is null."""
    from mixpert_py.tuner.report.record import finite

    measured = {} if found.verification is None else asdict(found.verification)
    return {
        "holds": found.holds,
        "problem": found.problem or None,
        "criterion": found.question.criterion,
        "budget": found.question.budget,
        **{key: x if isinstance(x, str) else finite(x) for key, x in measured.items()},
        "faster": found.faster,
        "stale": list(found.stale),
        "never_ran": list(found.silent),
        "fallbacks": {site: dict(reasons) for site, reasons in found.fallbacks.items()},
    }
