"""The command that finds a plan: `mixpert tune`."""

import json
import shlex
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from mixpert_py import commands
from mixpert_py.commands import FILE, say
from mixpert_py.errors import BudgetError, MixPertError, PlanError

if TYPE_CHECKING:
    from mixpert_py.launch.program import Program
    from mixpert_py.plan import Plan
    from mixpert_py.sources import TuningDefaults
    from mixpert_py.tuner.tuning_record import TuningRecord
    from mixpert_py.tuning.options import TuningOptions
    from mixpert_py.tuning.trials import Trials

SEARCHES = ("predictive", "greedy")  # as tuner.searches, which imports NumPy
SEED = "{seed}"
MOST_SEEDS = 10_000
LADDERS = ("auto", "int8", "crt", "mixpert", "fp16", "cpu")  # runtime.schemes has all but the first


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions(commands.ComparisonOptions):
    """The options of `mixpert tune`. seeds: the numbers that stand for {seed} in `hold_outs`."""

    reference: str
    ladder: str
    device: str | None
    search: str
    margin: float | None
    hold_outs: tuple[str, ...]
    seeds: range | None
    output: str | None
    resume: bool

    def with_defaults(self, project: "TuningDefaults") -> "tuple[TuneOptions, list[str]]":
        """The options, those that were not typed as the project has them; and these as words."""
        budgets = self.budgets or project.error
        criteria = self.criteria or project.criterion
        compare = self.compare or project.compare
        if not budgets:
            raise click.UsageError(
                "give --error BUDGET, or `error` under [tool.mixpert] in pyproject.toml"
            )
        words = [
            *(word for value in budgets if not self.budgets for word in ("--error", value)),
            *(word for value in criteria if not self.criteria for word in ("--criterion", value)),
            *(word for value in compare if not self.compare for word in ("--compare", value)),
        ]
        return replace(self, budgets=budgets, criteria=criteria, compare=compare), words

    def stricter(self) -> "tuple[TuneOptions, tuple[float, ...]]":
        """The loosest of several bare budgets, and the others in order. Raises UsageError."""
        from mixpert_py.tuning.options import budget_of

        texts = {budget_of("--error", text): text for text in self.budgets if "=" not in text}
        if len(texts) < 2:
            return self, ()
        if len(texts) < len(self.budgets):
            raise click.UsageError("several budgets: give each as a bare --error BUDGET, and once")
        if self.hold_outs:
            raise click.UsageError("--hold-out judges one budget: give it with one --error")
        loosest, *others = sorted(texts, reverse=True)
        return replace(self, budgets=(texts[loosest],)), tuple(others)

    def other_arguments(self) -> tuple[tuple[str, ...], ...]:
        """The arguments of each hold-out; of one with {seed}, for each of the seeds, each once."""
        if any(SEED in text for text in self.hold_outs) != bool(self.seeds):
            raise click.UsageError(f"--seeds FIRST..LAST and {SEED} in --hold-out go together")
        found = []
        for text in self.hold_outs:
            try:
                words = shlex.split(text)
            except ValueError as error:
                raise click.UsageError(f"--hold-out: {error}") from None
            seeds = (self.seeds or ()) if SEED in text else (0,)
            found += [tuple(word.replace(SEED, str(seed)) for word in words) for seed in seeds]
        return tuple(dict.fromkeys(found))


def share(text: str) -> float:
    """The type of a share from 0 to below 1, such as 1% or 0.01."""
    number, percent, rest = text.partition("%")
    try:
        found = float(number) / (100 if percent else 1)
    except ValueError:
        found = nan
    if rest or not 0 <= found < 1:
        raise click.BadParameter(f"a share is such as 1% or 0.01, not {text}")
    return found


def seeds(text: str) -> range:
    """The type of the numbers FIRST..LAST."""
    first, _, last = text.partition("..")
    try:
        found = range(int(first), int(last) + 1)
    except ValueError:
        found = range(0)
    if not 0 < len(found) <= MOST_SEEDS:
        raise click.BadParameter(f"1 to {MOST_SEEDS:,} seeds, such as 1..59, not {text}")
    return found


@click.command(cls=commands.ProgramCommand)
@commands.package_option
@commands.comparison_options
@click.option(
    "--reference",
    type=click.Choice(["float64", "native"]),
    default="float64",
    show_default=True,
    help="What errors are measured against: every product in float64, or the program as it is.",
)
@click.option(
    "--ladder",
    type=click.Choice(LADDERS),
    default=LADDERS[0],
    show_default=True,
    help="The schemes that are tried; auto: int8 where products run on a GPU or are emulated, crt "
    "(residues) for float64 on a GPU, cpu (exact, blas, float32) elsewhere.",
)
@click.option(
    "--device",
    metavar="NAME",
    help="A GPU that need not be here, such as h200: tensor cores are emulated, times predicted.",
)
@click.option(
    "--search",
    type=click.Choice(SEARCHES),
    default=SEARCHES[0],
    show_default=True,
    help="How plans are chosen; greedy as MixPert published it.",
)
@click.option(
    "--margin",
    type=share,
    metavar="SHARE",
    help="The part of the budget that is kept for data the program is not tuned on; default: 50%, "
    "or 0 with --hold-out.",
)
@click.option(
    "--hold-out",
    "hold_outs",
    multiple=True,
    metavar="ARGS",
    help="Arguments of the program for data that it is not tuned on, such as '--seed 1'. May be "
    "repeated.",
)
@click.option(
    "--seeds",
    type=seeds,
    metavar="FIRST..LAST",
    help="Numbers that stand for {seed} in --hold-out, one after the other: 59 for '1..59'.",
)
@click.option(
    "-o",
    "--output",
    metavar="PLAN",
    type=FILE,
    help="Default: SCRIPT.mixpert.toml. Several budgets are put into the names of their plans: "
    "SCRIPT-1e-3.mixpert.toml.",
)
@click.option("--resume", is_flag=True, help="Go on with the same tuning, if it was interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@commands.with_progress
@commands.module_option
@commands.script_argument
@commands.its_arguments
@commands.as_record(TuneOptions)
def tune(options: TuneOptions) -> int:
    """Find the fastest plan whose error stays within a budget.

    It is written as a file. Every run of SCRIPT is a process of its own. The options may also stand
    right behind SCRIPT; what follows them, or `--`, is the program's. Every run is kept in a
    .trials.jsonl file beside the plan: what Ctrl-C interrupts, --resume goes on with.
    """
    from mixpert_py import config, files, sources
    from mixpert_py.tuner.report import budget_text
    from mixpert_py.tuning.trials import Trials, beside, only_tuning

    program = commands.program_of(options.module, options.script, options.arguments)
    packages = commands.packages_of(program, options.packages)
    options, taken = options.with_defaults(sources.tuning_defaults(program.filename))
    settings = replace(settings_of(options, taken), packages=packages)
    path = Path(options.output) if options.output else config.plan_beside(program.argv[0])
    paths = [path]
    if settings.stricter:
        end = config.SUFFIX if path.name.endswith(config.SUFFIX) else path.suffix
        budgets = map(budget_text, (settings.limits.budget, *settings.stricter))
        paths = [path.with_name(f"{path.name.removesuffix(end)}-{it}{end}") for it in budgets]
        if len(set(paths)) < len(paths) or any(map(files.is_stream, [path, *paths])):
            raise PlanError(f"{path}: these budgets would have one plan file")
    trials = Trials(beside(paths[0]), options.resume, say)
    with ExitStack() as claims:
        for one in paths:
            claims.enter_context(only_tuning(one))
            config.require_plan_place(one)
            if one != path and one.exists() and any(x.locked for x in config.load_plan(one).site):
                raise PlanError(
                    f"{one}: it has locked sites; lock them in {path}, or remove the file"
                )
        existing = config.load_plan(path) if path.exists() else None
        return _tune(program, settings, existing, paths, trials, options)


def settings_of(options: TuneOptions, taken: list[str]) -> "TuningOptions":
    """A tuning's options. Raises MixPertError for bad ones. taken: words that the project gave."""
    from mixpert_py.runtime.backends import emulates, require_backend
    from mixpert_py.tuning.options import (
        MARGIN,
        UNTIL,
        TuningOptions,
        limits_from,
        parse_budgets,
        parse_named,
    )

    options, stricter = options.stricter()
    metrics = parse_named("--criterion", options.criteria)
    limits = limits_from(parse_budgets("--error", options.budgets), metrics)
    backend = options.backend
    if options.device is not None:
        backend = backend or "reference"
        if not emulates(backend):
            raise click.UsageError(f"--device predicts times; --backend {backend} measures them")
    require_backend(backend)
    usual = 0.0 if options.hold_outs else MARGIN
    return TuningOptions(
        limits,
        options.compare,
        backend,
        options.time_limit,
        options.search,
        command=shlex.join(["mixpert", *sys.argv[1:2], *taken, *sys.argv[2:]]),
        hold_outs=options.other_arguments(),
        reference=options.reference,
        ladder=options.ladder,
        device=options.device,
        until=UNTIL,
        margin=usual if options.margin is None else options.margin,
        stricter=stricter,
    )


def _tune(
    program: "Program",
    settings: "TuningOptions",
    existing: "Plan | None",
    paths: list[Path],
    trials: "Trials",
    options: TuneOptions,
) -> int:
    """Tune, write the plan files and print the results; returns the exit code.

    existing: the plan whose locked sites stay. paths: one for each budget; the first one's trials
    file has the runs of all. Ctrl-C is let through within a run only: what comes of it is written
    to the end.
    """
    from mixpert_py import plan as plan_file
    from mixpert_py.commands import tables
    from mixpert_py.execution import deferred_signals
    from mixpert_py.tuning.experiment import RunSettings
    from mixpert_py.tuning.prepare import prepare
    from mixpert_py.tuning.search import record, tune_each

    def on_run(purpose: str) -> None:
        interrupt.check()
        show(purpose)

    quiet = options.as_json or options.quiet
    with deferred_signals() as interrupt:
        try:
            with tables.progress(quiet, options.verbose) as show:
                announce = (lambda line: None) if quiet else say
                runs = RunSettings(on_run, say, announce, trials)
                prepared = prepare(program, settings, existing, runs)
                outcome = prepared if isinstance(prepared, str) else tune_each(prepared)
        except KeyboardInterrupt:  # before there was any plan; the bar is gone
            return _interrupted(trials)
        if isinstance(outcome, str):
            click.echo(f"{program.argv[0]}: {outcome}; no plan was written", err=True)
            if options.as_json:
                click.echo("null")
            return 1
        records: dict[Path, TuningRecord] = {}
        written: list[Path] = []
        problems: list[MixPertError] = []
        for path, result in zip(paths, outcome, strict=False):  # fewer, if interrupted
            if isinstance(result, BudgetError):
                problems.append(result)
                continue
            records[path] = record(result, str(path))
            try:
                if result.worth_writing:
                    plan_file.save(result.plan, path)
                    written.append(path)
            except PlanError as error:
                problems.append(PlanError(f"{error}; --resume writes the plan then"))
        is_interrupted = any(one.interrupted for one in records.values())
        for path in written:
            entry = msgspec.to_builtins(records[path])
            trials.end(path, entry, finished=not (is_interrupted or problems))
    try:
        _show(records, written, options)
    finally:
        if problems:  # raised where the output cannot be written, either
            raise problems[0]
    return _interrupted(trials) if is_interrupted else int(any(x.unclear for x in records.values()))


def _show(records: "dict[Path, TuningRecord]", written: list[Path], options: TuneOptions) -> None:
    """Print the record for each plan file, in the form that the options want."""
    from mixpert_py.commands import tables

    several = sum("=" not in text for text in options.budgets) > 1
    if options.as_json and records:
        found = msgspec.to_builtins([*records.values()])
        click.echo(json.dumps(found if several else found[0], indent=2))
    elif records and not options.quiet:
        if several:
            tables.print_budgets([*records.values()])
        for path, one in records.items():
            if not several:
                tables.print_tuned(one)
            click.echo(f"plan written to {path}" if path in written else "no plan was written")


def _interrupted(trials: "Trials") -> int:
    return commands.interrupted("; --resume goes on from here" if trials.has_runs else "")
