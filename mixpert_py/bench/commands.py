"""`mixpert bench`: a command for every number in the README."""

import json
from pathlib import Path
from typing import Any

import click

from mixpert_py.bench.apps.command import bench_apps
from mixpert_py.bench.soak.command import bench_soak
from mixpert_py.errors import MixPertError
from mixpert_py.program_command import TuningCommand


class Shape(click.ParamType[tuple[int, int, int]]):
    """m, k, n, written as one number or three with an x between them."""

    name = "shape"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int, int]:
        try:
            sizes = [int(part) for part in str(value).split("x")]
        except ValueError:
            sizes = []
        if len(sizes) not in (1, 3) or min(sizes, default=0) < 1:
            self.fail(f"{value!r} is no N or MxKxN")
        return sizes[0], sizes[len(sizes) // 2], sizes[-1]


@click.group()
def bench() -> None:
    """Measure what the README says about speed."""


bench.add_command(bench_apps)
bench.add_command(bench_soak)


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


@bench.command("rewrite")
@click.option("-j", "jobs", default=2, show_default=True, type=click.IntRange(1), metavar="N")
@click.option("--save", is_flag=True, help="Keep the result beside the code.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
def bench_rewrite(jobs: int, save: bool, paths: tuple[str, ...]) -> None:
    """Whole projects rewritten in memory: files, lines, products, seconds, peak memory."""
    from mixpert_py.bench import machine, rewriting

    _show(machine.finish("rewrite", rewriting.measure(paths, jobs), save))


@bench.command("start-up")
@click.option("--rounds", default=15, show_default=True, type=click.IntRange(1))
@click.option("--save", is_flag=True, help="Keep the result beside the code.")
def bench_start_up(rounds: int, save: bool) -> None:
    """Whole processes: what an import of ours adds to NumPy's, and `mixpert run` to `python`."""
    from mixpert_py.bench import machine, start_up

    _show(machine.finish("start-up", start_up.measure(rounds), save))


@bench.command("search")
@click.option("--samples", default="samples", show_default=True, metavar="FOLDER")
@click.option(
    "--hold-outs", default=0, metavar="N", help="Instead: N random tunings, each with a hold-out."
)
@click.option("--save", is_flag=True, help="Keep the result beside the code.")
def bench_search(samples: str, hold_outs: int, save: bool) -> None:
    """The tuner's searches on samples that are really run: what they save, in how many runs."""
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
    """Predicted times and chosen tiles against measured ones, on this GPU."""
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
    """The same products on each of 1, 2, 4 GPUs, a process each, copies of the host included.

    Exit code 1 where an efficiency is below 0.85.
    """
    from mixpert_py import gpu_use
    from mixpert_py.bench import machine, scaling

    cupy = machine.gpu()
    names = gpu_use.names("cuda")
    counts = counts or tuple(count for count in (1, 2, 4) if count <= len(names))

    def say(line: str) -> None:
        click.echo(line, err=True)

    result = scaling.measure(names, counts, size, rounds, say=say)
    result = machine.finish("scaling", result, save, machine.device(cupy))
    click.echo("\n".join(scaling.lines(result)))
    return int(not result["met"])


@bench.command("gemm")
@click.option(
    "--suite",
    type=click.Choice(["sizes", "targets"]),
    default="sizes",
    show_default=True,
    help="sizes: schemes and cuBLAS over sizes and input families; targets: what is to be reached.",
)
@click.option("--size", "shapes", type=Shape(), multiple=True, metavar="N|MxKxN")
@click.option("--scheme", "schemes", multiple=True, metavar="NAME")
@click.option("--mode", "modes", multiple=True, metavar="NAME", help="A mode of cuBLAS.")
@click.option("--family", "families", multiple=True, metavar="NAME", help="Of operands.")
@click.option("--error-size", default=2048, show_default=True, help="Where families are judged.")
@click.option("--samples", default=20, show_default=True, type=click.IntRange(2))
@click.option(
    "--only", multiple=True, metavar="WORD", help="Sections that begin so; `list` names all."
)
@click.option("--resume", is_flag=True, help="Keep the sections that FILE has already.")
@click.option("--json", "json_path", metavar="FILE", help="Written after every section.")
@click.option("--save", is_flag=True, help="FILE is beside the code, for the README.")
def bench_gemm(
    suite: str,
    shapes: tuple[tuple[int, int, int], ...],
    schemes: tuple[str, ...],
    modes: tuple[str, ...],
    families: tuple[str, ...],
    error_size: int,
    samples: int,
    only: tuple[str, ...],
    resume: bool,
    json_path: str | None,
    save: bool,
) -> int:
    """Schemes against every mode of cuBLAS on this GPU: time, error, grade."""
    from mixpert_py.bench.gemm import run

    wish = run.Wish(suite, shapes, schemes, modes, families, error_size, samples)
    run.check(wish)
    path = run.kept(suite) if save else Path(json_path) if json_path else None
    return run.run(wish, path, only, resume)


@bench.command("papers")
@click.option(
    "--only", multiple=True, metavar="EXHIBIT|PAPER", help="These alone; `list` names all."
)
@click.option("--small", is_flag=True, help="Small sizes; without a GPU errors alone, in NumPy.")
@click.option(
    "--seconds", default=450.0, show_default=True, help="No exhibit begins after so many."
)
@click.option("--json", "json_path", metavar="FILE", help="Brought up to date by every exhibit.")
@click.option("--save", is_flag=True, help="FILE is beside the code, for the README.")
@click.option("--html", metavar="FILE", help="Write all that FILE then has as a page.")
def bench_papers(
    only: tuple[str, ...],
    small: bool,
    seconds: float,
    json_path: str | None,
    save: bool,
    html: str | None,
) -> int:
    """Tables and figures of five papers, measured on this GPU, beside their published numbers."""
    if save and small:
        raise click.UsageError("--save keeps results of full sizes, which --small does not make")
    from mixpert_py.bench.papers import run

    path = run.RESULT if save else Path(json_path) if json_path else None
    return run.run(only, small, seconds, path, Path(html) if html else None)


@bench.command("products")
@click.option(
    "--backend", type=click.Choice(["cuda", "reference"]), default="cuda", show_default=True
)
@click.option("--count", default=10_000, show_default=True, help="Products in all.")
@click.option("--seconds", default=540.0, show_default=True, help="At most, in this call.")
@click.option("--largest", default=4096, show_default=True, type=click.IntRange(1))
@click.option("--state", "state_path", metavar="FILE", help="Go on where FILE says.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1))
@click.option("--seed", type=click.IntRange(0), help="This product alone, failed or not.")
def bench_products(
    backend: str,
    count: int,
    seconds: float,
    largest: int,
    state_path: str | None,
    workers: int,
    seed: int | None,
) -> int:
    """Random products, each held against what its scheme states; exit code 1 if one fails.

    Shapes at and beside multiples of tiles, every layout in memory, family of operands, type and
    scheme; NaN, Inf and overflow now and then. Against FP64: the certificate, what slices lost, and
    what was made of them.
    """
    from mixpert_py.bench.products import backend as backends
    from mixpert_py.bench.products import case, examine, sweep

    path = Path(state_path) if state_path else None
    state = sweep.load(path, backend, largest)
    backends.backend(backend)
    if seed is not None:
        ran, failures = examine.examine_seed(backend, seed, largest)
        click.echo(case.draw(seed, largest))
        click.echo(f"ran {ran}: {'; '.join(failures) or 'holds'}")
        return int(bool(failures))
    judge = sweep.one_by_one(backend, largest, workers)
    sweep.sweep(judge, state, count, seconds, path, click.echo)
    click.echo(
        f"{state.next} of {count} products in {state.seconds:.0f} s, {len(state.failures)} failed"
    )
    for name, times in sorted(state.ran.items(), key=lambda item: -item[1]):
        click.echo(f"{times:6} {name}")
    return int(bool(state.failures))


@bench.command("readme")
@click.option("--into", "readme", metavar="README", help="Put them there; pictures beside it.")
def bench_readme(readme: str | None) -> None:
    """The README's tables and pictures, made from the results that --save keeps."""
    from mixpert_py import files
    from mixpert_py.bench import machine, predictions
    from mixpert_py.bench.apps import pictures as apps_pictures
    from mixpert_py.bench.apps import readme as apps_readme
    from mixpert_py.bench.apps import run as apps
    from mixpert_py.bench.gemm import pictures
    from mixpert_py.bench.gemm import readme as gemm
    from mixpert_py.bench.papers import run as papers
    from mixpert_py.bench.soak import verdict as soak

    found = gemm.results()
    if not found:
        raise MixPertError("no results are kept; `mixpert bench gemm --save` makes them")
    parts = gemm.parts(found)
    model = machine.RESULTS / "model.json"
    if model.exists():
        parts["model"] = predictions.markdown(json.loads(model.read_text("utf-8")))
    if papers.RESULT.exists():
        parts["papers"] = papers.markdown(papers.read(papers.RESULT), papers.PAGE)
    if soak.RESULT.exists():
        parts["soak"] = soak.markdown(soak.read())
    programs = apps.read(machine.RESULTS / apps.NAME)
    if programs is not None:
        parts["apps"] = apps_readme.part(programs)
    if readme is None:
        click.echo("\n".join(parts.values()), nl=False)
        return
    path = Path(readme)
    text = gemm.updated(path.read_text("utf-8"), parts)
    if "sizes" in found:
        sizes = found["sizes"]
        folder = path.parent / gemm.PICTURES
        pictures.draw(sizes["sections"], sizes["machine"]["device"], folder)
    if programs is not None and programs["apps"]:
        device = programs["machine"]["device"]
        apps_pictures.draw(programs["apps"], device, path.parent / gemm.PICTURES)
    if papers.RESULT.exists():
        papers.write_page(papers.read(papers.RESULT), path.parent / papers.PAGE)
    files.replace(path, text.encode())


def _show(result: dict[str, Any]) -> None:
    click.echo(json.dumps(result, indent=2, ensure_ascii=False))
