"""One application at every level once, for the kernels that this leaves in the caches on disk."""

from contextlib import suppress
from pathlib import Path

from mixpert_py.bench.apps import modes, tuned
from mixpert_py.bench.apps.app import App
from mixpert_py.bench.apps.measure import Place
from mixpert_py.bench.apps.program import Sample
from mixpert_py.bench.apps.runs import Runs
from mixpert_py.runtime.in_force import use


def rehearse(app: App, arguments: tuple[str, ...], samples: Path, place: Place, first: int) -> None:
    """Run all that `measure` will; what fails here says so there.

    first: the level to begin with. Of applications that are rehearsed at once each begins with
    another, so that they compile for one another. The float64 run needs most memory: it comes last.
    """
    with use(modes.NATIVE):
        problem = Sample.load(samples / f"{app.sample}.py").problem(place.xp, arguments)
    runs = Runs(app, problem, place.timer, ())
    levels = tuned.levels()
    at = first % len(levels)
    for level in (*levels[at:], *levels[:at]):
        with suppress(Exception):
            runs.once(modes.under(dict.fromkeys(problem.sample.sites, level), place.backend))
    with suppress(Exception):
        tuned.profile(runs, place.backend, levels)
    with suppress(Exception), modes.tensor_float(place.xp):
        runs.once(modes.NATIVE)
    with suppress(Exception):
        judged = Runs.of(app, problem, place.timer)
        values, _ = judged.once(modes.NATIVE)
        judged.error(values)
        judged.figure(values)
