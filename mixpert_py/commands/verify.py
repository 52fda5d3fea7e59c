"""The command that says whether a plan still holds: `mixpert verify`."""

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from mixpert_py import commands
from mixpert_py.commands import FILE
from mixpert_py.tuner.ratio import Pace

if TYPE_CHECKING:
    from mixpert_py.plan import Plan
    from mixpert_py.tuning.options import TuningOptions
    from mixpert_py.tuning.verify import PlanVerdict


PACE: dict[Pace | None, str] = {
    Pace.NOT_FASTER: ": no longer faster",
    Pace.UNCLEAR: ": cannot tell on this machine now whether that is faster",
}
FASTER: dict[Pace | None, bool] = {Pace.FASTER: True, Pace.NOT_FASTER: False}


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions(commands.ComparisonOptions):
    reference: str | None
    strict: bool
    plan: str


@click.command(cls=commands.PlanCommand)
@commands.package_option
@commands.comparison_options
@click.option(
    "--reference",
    type=click.Choice(["float64", "native"]),
    help="The reference of errors; default: the plan's.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="The plan also fails if a product is less accurate than when the plan was made. Such "
    "products run natively.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
@commands.with_progress
@commands.module_option
@click.argument("plan", metavar="PLAN", type=FILE)
@commands.script_argument
@commands.its_arguments
@commands.as_record(VerifyOptions)
def verify(options: VerifyOptions) -> int:
    """Measure again whether a plan holds: exit with 0 if so, else with 1.

    SCRIPT runs natively and under the plan, in fresh processes. A plan holds if every error is
    within its budget and every call site of the plan still exists. The command also prints whether
    the plan is still faster. Budgets, criteria, values and backend that are not given are the
    plan's. The options may also stand directly after SCRIPT; what follows them, or `--`, is the
    program's.
    """
    from mixpert_py import config
    from mixpert_py.commands import tables
    from mixpert_py.tuning.verify import check_plan

    plan = config.load_plan(options.plan)
    settings = _settings(options, plan)
    program = commands.program_of(options.module, options.script, options.arguments)
    known = [package.name for package in plan.package]
    names = [*commands.packages_of(program, options.packages), *known]
    settings = replace(settings, packages=tuple(dict.fromkeys(names)))
    quiet = options.as_json or options.quiet
    with tables.progress(quiet, options.verbose) as show:
        found = check_plan(program, plan, settings, show)
    holds = found.holds and not (options.strict and found.outside)
    if options.as_json:
        click.echo(json.dumps({**_record(found), "holds": holds}, indent=2))
    elif not options.quiet:
        click.echo("\n".join([f"{options.plan}: {_headline(found, holds)}", *_details(found)]))
    return 0 if holds else 1


def _settings(options: VerifyOptions, plan: "Plan") -> "TuningOptions":
    """The options as the verification takes them; those that were left out are the plan's own."""
    from mixpert_py.budget import limits_of
    from mixpert_py.errors import PlanError
    from mixpert_py.runtime.backends import backend_of, require_backend
    from mixpert_py.tuning.judge import resolve
    from mixpert_py.tuning.options import TuningOptions, parse_budgets, parse_named

    budgets = parse_budgets("--error", options.budgets)
    metrics = parse_named("--criterion", options.criteria)
    for name in metrics.values():
        resolve(name, "")  # an unknown one is not in the plan, either: that it is unknown says more
    try:
        limits = limits_of(plan, budgets, metrics, named=not options.compare)
    except PlanError as error:
        raise PlanError(f"{options.plan}: {error} (--error BUDGET)") from None
    backend, made_by = options.backend, plan.provenance.backend
    if backend is None and backend_of(made_by) is not None:
        backend = made_by
    require_backend(backend)
    reference = options.reference
    if reference is None:
        reference = plan.criterion[0].reference if plan.criterion else "float64"
    return TuningOptions(limits, options.compare, backend, options.time_limit, reference=reference)


def _headline(found: "PlanVerdict", holds: bool) -> str:
    from mixpert_py.tuner.report import budget_text, error_text

    verdict = "holds" if holds else "does not hold"
    measured, limits = found.verification, found.options.limits
    if measured is None:
        return f"{verdict}: {found.problem or 'the plan lowers no product'}"
    if found.holds and not holds:
        calls = "1 product was" if found.outside == 1 else f"{found.outside} products were"
        return f"{verdict}: {calls} less accurate than when the plan was made"
    limit, error = limits.of(measured.worst), measured.errors[measured.worst]
    within = "within" if error <= limit.budget else "over"
    return (
        f"{verdict}: {limit.metric} error {error_text(error)}, {within} the budget of "
        f"{budget_text(limit.budget)}, in {measured.worst!r}"
    )


def _details(found: "PlanVerdict") -> list[str]:
    from mixpert_py.runtime.reasons import MEANING
    from mixpert_py.tuner.report import SAME_SETTINGS, clock_unit, gain_text, value_line
    from mixpert_py.tuner.tuning_record import value_entries

    lines: list[str] = []
    if not found.options.limits.only:  # they have limits of their own
        lines = [f"  {value_line(value)}" for value in value_entries(found.values)]
    lines += [f"  {site}: not in the program any more" for site in found.stale]
    lines += [f"  {site}: never ran" for site in found.silent]
    for site, reasons in found.fallbacks.items():
        why = ", ".join(f"{reason} ({calls}×)" for reason, calls in reasons.items())
        lines.append(f"  {site}: not as planned: {why}")
    for reason in dict.fromkeys(reason for one in found.fallbacks.values() for reason in one):
        lines.append(f"  {reason}: {MEANING[reason]}")
    lines += [f"  {note}" for note in found.notes]
    measured = found.verification
    if measured is None:
        return lines
    if found.emulated:
        return [*lines, "  the schemes were emulated: their times say nothing"]
    products = clock_unit((measured.native_lowered,))
    whole = clock_unit((measured.native_seconds,))
    return [
        *lines,
        f"  lowered products {products.number(measured.native_lowered)} → "
        f"{products.quantity(measured.lowered)}{PACE.get(found.pace, '')}",
        f"  whole program {gain_text(measured.gain(found.pace), whole)}; whole runs vary by "
        f"{clock_unit((measured.spread,)).quantity(measured.spread)}",
        f"  {SAME_SETTINGS}",
    ]


def _record(found: "PlanVerdict") -> dict[str, Any]:
    """The verdict as plain data for JSON; a number that is none is null."""
    import msgspec

    from mixpert_py.tuner.tuning_record import value_entries

    measured, limits = found.verification, found.options.limits
    record: dict[str, Any] = {
        "problem": found.problem or None,
        "criterion": limits.metric,
        "budget": limits.budget,
        "values": msgspec.to_builtins(value_entries(found.values)),
        "gain": None,
        "ratio": None,
        "faster": FASTER.get(found.pace),
        "stale": list(found.stale),
        "never_ran": list(found.silent),
        "fallbacks": {site: dict(reasons) for site, reasons in found.fallbacks.items()},
    }
    if measured is not None:
        for name in ("error", "worst", "native_seconds", "spread", "native_lowered"):
            record[name] = getattr(measured, name)
        record["gain"] = msgspec.to_builtins(measured.gain(found.pace))
        record["ratio"] = asdict(measured.ratio)
    return dict(json.loads(json.dumps(record), parse_constant=lambda name: None))
