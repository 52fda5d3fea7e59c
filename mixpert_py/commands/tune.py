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

from mixpert_py.commands.program import (
    FILE,
    ProgramCommand,
    as_record,
    complete_backends,
    complete_criteria,
    complete_devices,
    interrupted,
    its_arguments,
    module_option,
    package_option,
    packages_of,
    plan_place,
    program_of,
    script_argument,
    seconds,
    with_progress,
)
from mixpert_py.errors import BudgetError, MixPertError, PlanError

if TYPE_CHECKING:
    from mixpert_py.interrupts import Interrupt
    from mixpert_py.launch.launcher import Program
    from mixpert_py.plan import Plan
    from mixpert_py.sources.project import TuningDefaults
    from mixpert_py.tuner.report.record import Record
    from mixpert_py.tuning.options import TuningOptions
    from mixpert_py.tuning.search import TuningResult
    from mixpert_py.tuning.trials import Trials

SEARCHES = ("predictive", "greedy")  # as tuner.searches, which imports NumPy
SEED = "{seed}"
MOST_SEEDS = 10_000
LADDERS = ("auto", "int8", "crt", "mixpert", "fp16", "cpu")  # runtime.schemes has all but the first


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `mixpert tune` as they were typed, and the program."""

    packages: tuple[str, ...]
    budgets: tuple[str, ...]
    criteria: tuple[str, ...]
    compare: tuple[str, ...]
    reference: str
    backend: str | None
    ladder: str
    device: str | None
    time_limit: float | None
    search: str
    until: str
    margin: str | None
    hold_outs: tuple[str, ...]
    seeds: str | None
    output: str | None
    resume: bool
    as_json: bool
    quiet: bool
    verbose: bool
    module: str | None
    script: str | None
    arguments: tuple[str, ...]

    def with_defaults(self, project: "TuningDefaults") -> "tuple[Options, list[str]]":
        """The options, those that were not typed as the project has them; and these as words.

        Raises UsageError where neither has a budget.
        """
        if not (self.budgets or project.error):
            raise click.UsageError(
                "give --error BUDGET, or `error` under [tool.mixpert] in pyproject.toml"
            )
        budgets = self.budgets or project.error
        criteria = self.criteria or project.criterion
        compare = self.compare or project.compare
        words = [
            *(word for one in budgets if not self.budgets for word in ("--error", one)),
            *(word for one in criteria if not self.criteria for word in ("--criterion", one)),
            *(word for one in compare if not self.compare for word in ("--compare", one)),
        ]
        made = replace(self, budgets=budgets, criteria=criteria, compare=compare)
        return made, words

    @property
    def has_several_budgets(self) -> bool:
        return sum("=" not in text for text in self.budgets) > 1

    def stricter(self) -> "tuple[Options, tuple[float, ...]]":
        """The options with the loosest of several bare budgets, and the others in order.

        Raises UsageError for what only one budget goes with.
        """
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

    def kept(self) -> float:
        """The share of --margin; by default, other data has a half unless there are hold-outs."""
        if self.margin is None:
            from mixpert_py.tuning.options import MARGIN

            return 0.0 if self.hold_outs else MARGIN
        return _share("--margin is a part of the budget, such as 50%", self.margin)

    def other_arguments(self) -> tuple[tuple[str, ...], ...]:
        """The arguments of each hold-out; of one with {seed}, for each of the seeds, each once.

        Raises UsageError where they cannot be split, or one of {seed} and --seeds is missing.
        """
        seeds = () if self.seeds is None else _seeds(self.seeds)
        found = []
        for text in self.hold_outs:
            try:
                words = shlex.split(text)
            except ValueError as error:
                raise click.UsageError(f"--hold-out: {error}") from None
            if not any(SEED in word for word in words):
                found.append(tuple(words))
            elif not seeds:
                raise click.UsageError(f"--hold-out {text}: {SEED} takes --seeds FIRST..LAST")
            else:
                found += [tuple(w.replace(SEED, str(seed)) for w in words) for seed in seeds]
        if seeds and not any(SEED in text for text in self.hold_outs):
            raise click.UsageError(f"--seeds are for {SEED} in --hold-out, as in '--seed {SEED}'")
        # One that is named twice tells no more of other inputs than one.
        return tuple(dict.fromkeys(found))


def _share(wanted: str, text: str) -> float:
    """A share of 0 to 1, such as 1% or 0.01. Raises UsageError, with what is wanted, for others."""
    number, percent, rest = text.partition("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = nan
    if rest or not 0 <= share < 1:
        raise click.UsageError(f"{wanted}, not {text}")
    return share


def _seeds(text: str) -> range:
    """The numbers of FIRST..LAST. Raises UsageError where that is none, or too many."""
    first, dots, last = text.partition("..")
    if not (dots and first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise click.UsageError(f"--seeds is FIRST..LAST, such as 1..59, not {text}")
    found = range(int(first), int(last) + 1)
    if len(found) > MOST_SEEDS:
        raise click.UsageError(f"--seeds {text} are {len(found):,}; at most {MOST_SEEDS:,}")
    return found


@click.command(cls=ProgramCommand)
@package_option
@click.option(
    "--error",
    "budgets",
    multiple=True,
    metavar="[VALUE=]BUDGET",
    help="The error allowed: of every value, or of VALUE alone. May be repeated; a bare BUDGET "
    "beside is for all others, and without one the others are not judged. Of integers it is the "
    "share that differs, 0 unless VALUE has its own. Several bare BUDGETs: a plan for each.",
)
@click.option(
    "--criterion",
    "criteria",
    multiple=True,
    metavar="[VALUE=]NAME",
    shell_complete=complete_criteria,
    help="frobenius (the default), max, max-relative, mred, differing (the default of integers), "
    "or module:function(reference, value).",
)
@click.option(
    "--compare",
    multiple=True,
    metavar="WHAT",
    help="A variable, a file that the program writes (.npy, .npz, .csv), stdout (the numbers that "
    "it prints) or sinks (results that feed no other product); default: the variables that hold "
    "results when the program ends, without steps to others and residuals.",
)
@click.option(
    "--reference",
    type=click.Choice(["float64", "native"]),
    default="float64",
    show_default=True,
    help="What errors are measured against: every product in float64, or the program as it is.",
)
@click.option(
    "--backend",
    metavar="NAME",
    shell_complete=complete_backends,
    help="reference: emulate tensor cores in NumPy. reference:h200: add up as that GPU does.",
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
    shell_complete=complete_devices,
    help="A GPU that need not be here, such as h200: tensor cores are emulated, times predicted.",
)
@click.option("--time-limit", type=seconds, metavar="S", help="Seconds that one run may take.")
@click.option(
    "--search",
    type=click.Choice(SEARCHES),
    default=SEARCHES[0],
    show_default=True,
    help="How plans are chosen; greedy as MixPert published it.",
)
@click.option(
    "--until",
    metavar="SHARE",
    default="1%",
    show_default=True,
    help="End the search where no run is predicted to gain so much of the program's time; 0: any "
    "gain is worth a run.",
)
@click.option(
    "--margin",
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
@with_progress
@module_option
@script_argument
@its_arguments
@as_record(Options)
def tune(options: Options) -> int:
    """Find the fastest plan whose error stays within a budget.

    It is written as a file. Every run of SCRIPT is a process of its own. The options may also stand
    right behind SCRIPT; what follows them, or `--`, is the program's. Every run is kept in a
    .trials.jsonl file beside the plan: what Ctrl-C interrupts, --resume goes on with.
    """
    from mixpert_py import files
    from mixpert_py.sources import project
    from mixpert_py.tuning.trials import Trials, beside

    program = program_of(options.module, options.script, options.arguments)
    packages = packages_of(program, options.packages)
    options, taken = options.with_defaults(project.tuning_defaults(program.filename))
    settings = replace(settings_of(options, taken), packages=packages)
    path = Path(options.output) if options.output else plan_place(program)
    paths = [path]
    if settings.stricter:
        budgets = (settings.limits.budget, *settings.stricter)
        paths = [_place(path, budget) for budget in budgets]
        if len(set(paths)) < len(paths) or any(map(files.is_stream, [path, *paths])):
            raise PlanError(f"{path}: these budgets would have one plan file")
    trials = Trials(beside(paths[0]), options.resume, say)
    with ExitStack() as held:
        for one in paths:
            if not held.enter_context(files.working_on(one)) and not files.is_stream(one):
                raise PlanError(f"{one}: another tuning of it is running; -o names another plan")
        return _tune(program, settings, path, paths, trials, options)


def _place(path: Path, budget: float) -> Path:
    """The plan file of one of several budgets: `mlp-1e-5.mixpert.toml` for `mlp.mixpert.toml`."""
    from mixpert_py import config
    from mixpert_py.tuner.report.unit import budget_text

    end = config.SUFFIX if path.name.endswith(config.SUFFIX) else path.suffix
    return path.with_name(f"{path.name.removesuffix(end)}-{budget_text(budget)}{end}")


def settings_of(options: Options, taken: list[str]) -> "TuningOptions":
    """The options as the tuning takes them. Raises MixPertError for one that it cannot take.

    taken: those that the project gave, as words of the command line.
    """
    from mixpert_py.runtime.backends import emulates, require_backend
    from mixpert_py.tuning.options import TuningOptions, limits_from, parse_budgets, parse_named

    options, stricter = options.stricter()
    metrics = parse_named("--criterion", options.criteria)
    limits = limits_from(parse_budgets("--error", options.budgets), metrics)
    backend = options.backend
    if options.device is not None:
        backend = backend or "reference"
        if not emulates(backend):
            raise click.UsageError(f"--device predicts times; --backend {backend} measures them")
    require_backend(backend)
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
        until=_share("--until is a part of the time, such as 1%", options.until),
        margin=options.kept(),
        stricter=stricter,
    )


def _tune(
    program: "Program",
    settings: "TuningOptions",
    path: Path,
    paths: list[Path],
    trials: "Trials",
    options: Options,
) -> int:
    """Tune, write the plan files and print the results; returns the exit code.

    path: the plan whose locked sites stay. paths: one for each budget; the first one's trials file
    has the runs of all. Ctrl-C is let through within a run only: what comes of it is written to the
    end.
    """
    from mixpert_py import config, interrupts
    from mixpert_py.tuning import record
    from mixpert_py.tuning.search import TuningResult
    from mixpert_py.tuning.trials import save_record

    for one in paths:
        config.require_plan_place(one)
        if one != path and one.exists() and any(x.locked for x in config.load_plan(one).site):
            raise PlanError(f"{one}: it has locked sites; lock them in {path}, or remove the file")
    existing = config.load_plan(path) if path.exists() else None
    with interrupts.deferred_signals() as interrupt:
        try:
            found = _searched(program, settings, options, existing, trials, interrupt)
        except KeyboardInterrupt:  # before there was any plan
            return _interrupted(trials)
        if isinstance(found, str):
            _say_nothing_to_tune(program, found, options)
            return 1
        pairs = list(zip(paths, found, strict=False))  # an interrupted tuning leaves some budgets
        results = {place: it for place, it in pairs if isinstance(it, TuningResult)}
        problems: list[MixPertError] = [it for it in found if isinstance(it, BudgetError)]
        entries = {place: record.record(it, str(place)) for place, it in results.items()}
        written = [place for place, it in results.items() if _is_saved(it, place, problems)]
        interrupted = any(it.outcome.interrupted for it in results.values())
        for place in written:
            if place != paths[0]:
                save_record(place, msgspec.to_builtins(entries[place]))
            else:
                trials.end(
                    msgspec.to_builtins(entries[place]), finished=not (interrupted or problems)
                )
    try:
        if results:
            _show(entries, written, options)
    finally:
        if problems:  # raised where the output cannot be written, either
            raise problems[0]
    if interrupted:
        return _interrupted(trials)
    return int(any(it.unclear for it in results.values()))


def _show(entries: "dict[Path, Record]", written: list[Path], options: Options) -> None:
    """Print the record for each plan file, in the form that the options want."""
    from mixpert_py.commands import tables

    several = options.has_several_budgets
    if options.as_json:
        records = msgspec.to_builtins([*entries.values()])
        click.echo(json.dumps(records if several else records[0], indent=2))
    elif not options.quiet:
        if several:
            tables.print_budgets([*entries.values()])
        for path, found in entries.items():
            if not several:
                tables.print_tuned(found)
            click.echo(f"plan written to {path}" if path in written else "no plan was written")


def _searched(
    program: "Program",
    settings: "TuningOptions",
    options: Options,
    existing: "Plan | None",
    trials: "Trials",
    interrupt: "Interrupt",
) -> "list[TuningResult | BudgetError] | str":
    """The result for each budget, with a progress bar; or why there is nothing to tune.

    Raises KeyboardInterrupt where Ctrl-C came too early for a result; the bar, which would share
    the line of a message, is gone then.
    """
    from mixpert_py.commands import tables
    from mixpert_py.tuning.experiment import RunSettings
    from mixpert_py.tuning.prepare import prepare
    from mixpert_py.tuning.search import tune_each

    quiet = options.as_json or options.quiet
    with tables.progress(quiet, options.verbose) as show:

        def on_run(purpose: str) -> None:
            interrupt.check()
            show(purpose)

        announce = (lambda line: None) if quiet else say
        runs = RunSettings(on_run, say, announce, trials)
        prepared = prepare(program, settings, existing, runs)
        return prepared if isinstance(prepared, str) else tune_each(prepared)


def _is_saved(result: "TuningResult", path: Path, problems: list[MixPertError]) -> bool:
    """Write the plan file if the plan is worth it; returns whether it is written.

    An error is added to `problems`, and the tuning not ended: --resume takes its runs, and writes
    the plan.
    """
    from mixpert_py import plan as plan_file
    from mixpert_py.tuning import record

    if not result.worth_writing:
        return False
    try:
        plan_file.save(result.plan, path)
    except PlanError as error:
        problems.append(record.save_elsewhere(result.plan, error))
        return False
    return True


def _say_nothing_to_tune(program: "Program", why: str, options: Options) -> None:
    """Say that there is no plan, and why."""
    click.echo(f"{program.argv[0]}: {why}; no plan was written", err=True)
    if options.as_json:
        click.echo("null")


def say(line: str) -> None:
    click.echo(f"mixpert: {line}", err=True)


def _interrupted(trials: "Trials") -> int:
    return interrupted("; --resume goes on from here" if trials.has_runs else "")
