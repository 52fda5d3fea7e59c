"""The command that finds a plan: `mixpert tune`."""

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from mixpert_py.commands.program import (
    ProgramCommand,
    as_record,
    complete_backends,
    complete_criteria,
    complete_devices,
    complete_files,
    interrupted,
    module_option,
    package_option,
    packages_of,
    plan_place,
    program_of,
    require_seconds,
    with_progress,
)
from mixpert_py.errors import PlanError

if TYPE_CHECKING:
    from mixpert_py.interrupts import Interrupt
    from mixpert_py.launch.launcher import Program
    from mixpert_py.plan import Plan
    from mixpert_py.sources.project import TuningDefaults
    from mixpert_py.tuning.options import TuningOptions
    from mixpert_py.tuning.prepare import Prepared
    from mixpert_py.tuning.search import TuningResult
    from mixpert_py.tuning.trials import Trials

SEARCHES = (
    "predictive",
    "greedy",
    "exhaustive",
    "random",
)  # tuner.tune has them, and imports NumPy

Found = TypeVar("Found")
SEED = "{seed}"
MOST_SEEDS = 10_000
LOOSEST = "0.1"  # budget of --front, where none was typed
RELATIVE = ("frobenius", "max-relative", "mred")  # criteria for which that is a tenth
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
    workers: str
    dask: str | None
    search: str
    until: str
    margin: str | None
    front: bool
    hold_outs: tuple[str, ...]
    seeds: str | None
    hold_out_budgets: tuple[str, ...]
    output: str | None
    resume: bool
    as_json: bool
    quiet: bool
    verbose: bool
    no_progress: bool
    module: str | None
    script: str | None
    arguments: tuple[str, ...]

    def with_defaults(self, project: "TuningDefaults") -> "tuple[Options, list[str]]":
        """The options, those that were not typed as the project has them; and these as words.

        With --front that is the loosest budget, and LOOSEST where it was not typed. Raises
        UsageError where neither has a budget.
        """
        if not (self.budgets or project.error or self.front):
            raise click.UsageError(
                "give --error BUDGET, or `error` under [tool.mixpert] in pyproject.toml; "
                "or --front, to see what each budget gains"
            )
        budgets = self.budgets or ((LOOSEST,) if self.front else project.error)
        criteria = self.criteria or project.criterion
        compare = self.compare or project.compare
        words = [
            *(w for one in budgets if not (self.budgets or self.front) for w in ("--error", one)),
            *(word for one in criteria if not self.criteria for word in ("--criterion", one)),
            *(word for one in compare if not self.compare for word in ("--compare", one)),
        ]
        made = replace(self, budgets=budgets, criteria=criteria, compare=compare)
        return made, words

    def require_consistent(self) -> None:
        """Raise UsageError for a value that is none, and for options that exclude one another."""
        if self.hold_out_budgets and not self.hold_outs:
            raise click.UsageError("--hold-out-error is for --hold-out")
        require_seconds(self.time_limit)
        workers = self.workers
        if workers != "gpus" and not (workers.isdecimal() and int(workers)):
            raise click.UsageError(f"--workers is a number of at least 1, or gpus, not {workers}")
        if self.dask is not None and workers != "1":
            raise click.UsageError("give one of --workers and --dask")
        if self.front:
            self._require_front()

    def _require_front(self) -> None:
        """Raise UsageError for what a search for all budgets does not take."""
        if self.margin is not None:
            raise click.UsageError("--margin is for one budget, not for --front")
        if self.hold_outs:
            raise click.UsageError("--hold-out judges one budget: give it with the --error of one")
        if self.search != SEARCHES[0]:
            raise click.UsageError(f"--front is a search of its own, not --search {self.search}")
        absolute = [name.rpartition("=")[2] for name in self.criteria]
        absolute = [name for name in absolute if name not in RELATIVE]
        if absolute and self.budgets == (LOOSEST,):
            raise click.UsageError(
                f"--front with --criterion {absolute[0]}: give --error, the largest of interest"
            )

    def kept(self) -> float:
        """The share of --margin; by default, other data has a half unless there are hold-outs."""
        if self.margin is None:
            from mixpert_py.tuning.options import MARGIN

            return 0.0 if self.hold_outs or self.front else MARGIN
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
    "share that differs, 0 unless VALUE has its own.",
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
    "(residues) for float64 on a GPU, cpu (float64, float32) elsewhere.",
)
@click.option(
    "--device",
    metavar="NAME",
    shell_complete=complete_devices,
    help="A GPU that need not be here, such as h200: tensor cores are emulated, times predicted.",
)
@click.option("--time-limit", type=float, metavar="S", help="Seconds that one run may take.")
@click.option(
    "--workers",
    metavar="N|gpus",
    default="1",
    show_default=True,
    help="Runs at a time, where times are predicted or each run has a GPU; gpus: one for each GPU.",
)
@click.option(
    "--dask",
    metavar="ADDRESS",
    help="Make trials on this Dask cluster, one at a time on each of its workers; the current "
    "folder is sent to them.",
)
@click.option(
    "--search",
    type=click.Choice(SEARCHES),
    default=SEARCHES[0],
    show_default=True,
    help="How plans are chosen; greedy as MixPert published it, the last two as controls.",
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
    "--front",
    is_flag=True,
    help="Show the fastest plan within each of many budgets, from 0.1 or --error down, by one "
    "search; -o FOLDER writes them.",
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
    "--hold-out-error",
    "hold_out_budgets",
    multiple=True,
    metavar="[VALUE=]BUDGET",
    help="As --error, there; default: the same.",
)
@click.option(
    "-o",
    "--output",
    metavar="PLAN",
    shell_complete=complete_files,
    help="Default: SCRIPT.mixpert.toml. With --front, a folder for a plan of each step; default: "
    "none.",
)
@click.option("--resume", is_flag=True, help="Go on with the same tuning, if it was interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@with_progress
@module_option
@click.argument("script", metavar="SCRIPT", required=False, shell_complete=complete_files)
@click.argument(
    "arguments", nargs=-1, type=click.UNPROCESSED, metavar="ARGS…", shell_complete=complete_files
)
@as_record(Options)
def tune(options: Options) -> int:
    """Find the fastest plan whose error stays within a budget.

    It is written as a file. Every run of SCRIPT is a process of its own. The options may also stand
    right behind SCRIPT; what follows them, or `--`, is the program's. Every run is kept in a
    .trials.jsonl file beside the plan: what Ctrl-C interrupts, --resume goes on with.
    """
    from mixpert_py import config, files
    from mixpert_py.tuning.trials import Trials, beside

    program = program_of(options.module, options.script, options.arguments)
    packages = packages_of(program, options.packages)
    options, taken = options.with_defaults(config.tuning_defaults(program.filename))
    settings = replace(_settings(options, taken), packages=packages)
    if options.front:
        from mixpert_py.commands.tune_front import tune_front

        return tune_front(program, settings, options)
    path = Path(options.output) if options.output else plan_place(program)
    trials = Trials(beside(path), options.resume, say)
    with files.working_on(path) as is_alone:
        if not is_alone and not files.is_stream(path):
            raise PlanError(f"{path}: another tuning of it is running; -o names another plan")
        return _tune(program, settings, path, trials, options)


def _settings(options: Options, taken: list[str]) -> "TuningOptions":
    """The options as the tuning takes them. Raises MixPertError for one that it cannot take.

    taken: those that the project gave, as words of the command line.
    """
    from mixpert_py.runtime.context import emulates, require_backend
    from mixpert_py.tuning.options import TuningOptions, limits_from, parse_budgets, parse_named

    metrics = parse_named("--criterion", options.criteria)
    limits = limits_from(parse_budgets("--error", options.budgets), metrics)
    there = parse_budgets("--hold-out-error", options.hold_out_budgets)
    options.require_consistent()
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
        hold_out_limits=limits_from(there, metrics) if there else None,
        reference=options.reference,
        ladder=options.ladder,
        workers=None if options.workers == "gpus" else int(options.workers),
        device=options.device,
        dask=options.dask,
        until=_share("--until is a part of the time, such as 1%", options.until),
        margin=options.kept(),
        front=options.front,
    )


def _tune(
    program: "Program", settings: "TuningOptions", path: Path, trials: "Trials", options: Options
) -> int:
    """Tune, write the plan file and print the result; returns the exit code.

    Ctrl-C is let through within a run only: what comes of it is written to the end.
    """
    from mixpert_py import config, interrupts
    from mixpert_py.commands import tables
    from mixpert_py.tuning import record
    from mixpert_py.tuning.search import tune_program

    config.require_plan_place(path)
    existing = config.load_plan(path) if path.exists() else None
    with interrupts.deferred_signals() as interrupt:
        try:
            result = searched(program, settings, options, existing, trials, interrupt, tune_program)
        except KeyboardInterrupt:  # before there was any plan
            return interrupted_search(trials)
        if isinstance(result, str):
            nothing_to_tune(program, result, options)
            return 1
        entry = record.record(result, str(path))
        unsaved = _save(result, path, lambda: trials.end(entry, not result.outcome.interrupted))
    try:
        if options.as_json:
            click.echo(json.dumps(entry, indent=2))
        elif not options.quiet:
            tables.print_tuned(result)
            written = result.worth_writing and unsaved is None
            click.echo(f"plan written to {path}" if written else "no plan was written")
    finally:
        if unsaved is not None:  # raised where the output cannot be written, either
            raise unsaved
    return interrupted_search(trials) if result.outcome.interrupted else int(result.unclear)


def searched(
    program: "Program",
    settings: "TuningOptions",
    options: Options,
    existing: "Plan | None",
    trials: "Trials",
    interrupt: "Interrupt",
    search: Callable[["Prepared"], Found],
) -> Found | str:
    """The result of a search, whose runs a progress bar shows; or why there is nothing to tune.

    Raises KeyboardInterrupt where Ctrl-C came too early for a result; the bar, which would share
    the line of a message, is gone then.
    """
    from mixpert_py.commands import tables
    from mixpert_py.tuning.prepare import prepare

    quiet = options.as_json or options.quiet or options.no_progress
    with tables.progress(quiet, options.verbose) as show:

        def on_run(purpose: str) -> None:
            interrupt.check()
            show(purpose)

        announce = (lambda line: None) if quiet else say
        prepared = prepare(
            program, settings, existing, on_run, trials=trials, report=say_each, announce=announce
        )
        return prepared if isinstance(prepared, str) else search(prepared)


def _save(result: "TuningResult", path: Path, end: Callable[[], None]) -> PlanError | None:
    """Write the plan file if the plan is worth it, then call `end`.

    An error is returned, and the tuning not ended: --resume takes its runs, and writes the plan.
    """
    from mixpert_py import plan as plan_file
    from mixpert_py.tuning import record

    if result.worth_writing:
        try:
            plan_file.save(result.plan, path)
        except PlanError as error:
            return record.save_elsewhere(result.plan, error)
        end()
    return None


def nothing_to_tune(program: "Program", why: str, options: Options) -> None:
    """Say that there is no plan, and why."""
    click.echo(f"{program.argv[0]}: {why}; no plan was written", err=True)
    if options.as_json:
        click.echo("null")


def say(line: str) -> None:
    click.echo(f"mixpert: {line}", err=True)


def say_each(lines: list[str]) -> None:
    for line in lines:
        say(line)


def interrupted_search(trials: "Trials") -> int:
    return interrupted("; --resume goes on from here" if trials.has_runs else "")
