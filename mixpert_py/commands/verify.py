"""The command that says whether a plan still holds: `mixpert verify`."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from mixpert_py.commands.program import ProgramCommand, require_script

if TYPE_CHECKING:
    from mixpert_py.tuning.verify import PlanVerdict


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
    "--error",
    "budgets",
    multiple=True,
    metavar="[VALUE=]BUDGET",
    help="As for `mixpert tune`; default: what the plan was made for.",
)
@click.option(
    "--criterion",
    "criteria",
    multiple=True,
    metavar="[VALUE=]NAME",
    help="frobenius, max, max-relative, mred, or module:function; default: the plan's.",
)
@click.option(
    "--compare",
    multiple=True,
    metavar="WHAT",
    help="A variable, a .npy, .npz or .csv file, stdout or sinks; default: what was compared when "
    "the plan was made.",
)
@click.option(
    "--reference",
    type=click.Choice(["float64", "native"]),
    help="What errors are measured against; default: the plan's.",
)
@click.option("--backend", metavar="NAME", help="Default: that of the plan, or automatic.")
@click.option("--time-limit", type=float, metavar="S", help="Seconds that one run may take.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
@click.argument("plan", metavar="PLAN")
@click.argument("script", metavar="SCRIPT")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="ARGS…")
def verify(
    budgets: tuple[str, ...],
    criteria: tuple[str, ...],
    compare: tuple[str, ...],
    reference: str | None,
    backend: str | None,
    time_limit: float | None,
    as_json: bool,
    plan: str,
    script: str,
    arguments: tuple[str, ...],
) -> int:
    """Measure again whether a plan holds: exit 0 if so, else 1.

    SCRIPT runs natively and under the plan, in fresh processes. A plan holds if every error is
    within its budget and every call site of the plan is still there; whether it is still faster is
    said, too. The options may also stand right behind SCRIPT; what follows them, or `--`, is the
    program's.
    """
    from mixpert_py import config
    from mixpert_py.budget import limits_of
    from mixpert_py.commands import tables
    from mixpert_py.errors import PlanError
    from mixpert_py.launch import launcher
    from mixpert_py.runtime.context import emulates, require_backend
    from mixpert_py.tuning.options import TuningOptions, parse_budgets, parse_named
    from mixpert_py.tuning.verify import check_plan

    require_script("verify", script)
    if time_limit is not None and not time_limit > 0:
        raise click.UsageError(f"--time-limit is a number of seconds, not {time_limit}")
    given = parse_budgets("--error", budgets), parse_named("--criterion", criteria)
    loaded = config.load_plan(plan)
    try:
        allowed = limits_of(loaded, *given, named=not compare)
    except PlanError as error:
        raise PlanError(f"{plan}: {error} (--error BUDGET)") from None
    made_by = loaded.provenance.backend
    if backend is None and (made_by == "cuda" or emulates(made_by)):
        backend = made_by
    require_backend(backend)
    program = launcher.script(script, arguments)
    if reference is None:
        reference = loaded.criterion[0].reference if loaded.criterion else "float64"
    options = TuningOptions(allowed, compare, backend, time_limit, reference=reference)
    with tables.progress(as_json) as show:
        found = check_plan(program, loaded, options, show)
    if as_json:
        click.echo(json.dumps(_record(found), indent=2))
    else:
        click.echo("\n".join([f"{plan}: {_headline(found)}", *_details(found)]))
    return 0 if found.holds else 1


def _headline(found: "PlanVerdict") -> str:
    from mixpert_py.tuner.report.unit import error_text

    holds = "holds" if found.holds else "does not hold"
    measured, limits = found.verification, found.options.limits
    if measured is None:
        return f"{holds}: {found.problem}"
    limit, error = limits.of(measured.worst), measured.errors[measured.worst]
    within = "within" if error <= limit.budget else "over"
    return (
        f"{holds}: {limit.metric} error {error_text(error)}, {within} the budget of "
        f"{limit.budget:g}, in {measured.worst!r}"
    )


def _details(found: "PlanVerdict") -> list[str]:
    lines = [] if found.options.limits.only else _values(found)
    lines += [f"  {site}: not in the program any more" for site in found.stale]
    lines += [f"  {site}: never ran" for site in found.silent]
    for site, reasons in found.fallbacks.items():
        why = ", ".join(f"{reason} ({calls}×)" for reason, calls in reasons.items())
        lines.append(f"  {site}: not as planned: {why}")
    return [*lines, *_times(found)]


def _values(found: "PlanVerdict") -> list[str]:
    """A line for every value, where they have limits of their own."""
    from mixpert_py.commands.tables import value_line

    return [f"  {value_line(value)}" for value in found.values]


def _times(found: "PlanVerdict") -> list[str]:
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


def _record(found: "PlanVerdict") -> dict[str, Any]:
    """The verdict as plain data for JSON; a number that is none is null."""
    import msgspec

    from mixpert_py.tuner.report.record import finite
    from mixpert_py.tuning.record import value_entries

    measured = {} if found.verification is None else asdict(found.verification)
    measured.pop("errors", None)
    limits = found.options.limits
    return {
        "holds": found.holds,
        "problem": found.problem or None,
        "criterion": limits.metric,
        "budget": finite(limits.budget),
        **{key: x if isinstance(x, str) else finite(x) for key, x in measured.items()},
        "values": msgspec.to_builtins(value_entries(found.values)),
        "faster": found.faster,
        "stale": list(found.stale),
        "never_ran": list(found.silent),
        "fallbacks": {site: dict(reasons) for site, reasons in found.fallbacks.items()},
    }
