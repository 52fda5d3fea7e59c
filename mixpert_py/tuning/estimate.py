"""An estimate of what a program can gain: one run of it, then its products by themselves."""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import nan, prod
from typing import Any

from mixpert_py.errors import DeviceError
from mixpert_py.execution.executor import usable_gpu
from mixpert_py.execution.products import MeasuredProduct
from mixpert_py.execution.worker import Alone, Result
from mixpert_py.launch.profile import places_of
from mixpert_py.launch.program import Program
from mixpert_py.plan import is_in_source, module_of
from mixpert_py.runtime.arrays import are_whole
from mixpert_py.runtime.model import device_model
from mixpert_py.runtime.schemes import ladder
from mixpert_py.sources.modules import matches
from mixpert_py.tuner import prediction as gains
from mixpert_py.tuner.prediction import PredictedGain
from mixpert_py.tuner.ratio import Ratio
from mixpert_py.tuner.records import Operator, largest
from mixpert_py.tuning.baseline import is_native_anywhere, why_all_native, why_native
from mixpert_py.tuning.clock import DeviceCost, by_site, site_ratio
from mixpert_py.tuning.experiment import Experiment, RunSettings
from mixpert_py.tuning.options import Limit, Limits, TuningOptions
from mixpert_py.tuning.project_sites import read_sites, torch_places

SECONDS, LEAST = 10.0, 1.0  # for the products by themselves, which take no longer than the program
PATIENCE = 0.4  # for one of them under one level
CHILDREN = 0.1  # time of other processes, over that of the program, from which it is named
MAKERS = ("NVIDIA ", "GeForce ", "Tesla ")


@dataclass(frozen=True, slots=True)
class EstimatedProduct:
    """A call site. errors: as in Operator. speeds: machine → scheme → times as fast as native.

    path: "" where it is not known. unsuited: why it can take no level on this machine's processor;
    "" where it can, or a GPU is here.
    """

    id: str
    path: str
    line: int
    expression: str
    calls: int
    seconds: float
    errors: Mapping[str, float]
    speeds: Mapping[str, Mapping[str, float]]
    unsuited: str = ""


@dataclass(frozen=True, slots=True)
class Estimate:
    """seconds: of the program. share: that of its products. products: longest first.

    places: this machine, then GPUs by their models, the fastest first. unmeasured: the part of the
    products' time in those that were not measured, and are taken to be like others. children:
    seconds of processor time of the processes that the program started, whose products are not
    known. unsuited: why no product can take a level here; "" where one can.
    """

    seconds: float
    share: float
    products: tuple[EstimatedProduct, ...]
    places: tuple[PredictedGain, ...]
    unmeasured: float
    children: float = 0.0
    unsuited: str = ""

    @property
    def uncounted(self) -> bool:
        return self.children >= CHILDREN * self.seconds

    @property
    def products_seconds(self) -> float:
        return sum(product.seconds for product in self.products)

    def record(self) -> dict[str, Any]:
        """Plain data for JSON, with None for numbers that are not finite."""
        added = {"products_seconds": self.products_seconds, "ceiling": gains.ceiling(self.share)}
        text = json.dumps({**asdict(self), **added})
        return dict(json.loads(text, parse_constant=lambda name: None))


def estimate(
    program: Program,
    budget: float,
    time_limit: float | None = None,
    on_run: Callable[[str], None] = lambda purpose: None,
    packages: Collection[str] = (),
) -> Estimate | None:
    """Run a program once, then each of its products by itself; None if its process makes none.

    budget: the error that is allowed. time_limit: seconds for all of it. on_run: called before it
    starts. Raises SourceError if the program does not parse, ProgramError if it fails.
    """
    project = read_sites(program)
    emulations, casts = _lower("int8"), _lower("cpu")
    on_gpu = usable_gpu(None) is not None
    timed = (*emulations, *casts) if on_gpu else casts
    options = TuningOptions(Limits(Limit(budget)), time_limit=time_limit, packages=tuple(packages))
    experiment = Experiment(program, options, settings=RunSettings(on_run))
    limit = experiment.run_limit()
    alone = Alone(timed, (*emulations, *casts), SECONDS, PATIENCE, limit, 1.0, LEAST)
    result = experiment.products_alone(alone).result
    if not any(site.seconds for site in result.sites.values()):
        return None
    unsuited = {} if on_gpu else {site: why_native(it) for site, it in result.sites.items()}
    own, alike = by_site(result.alone), _by_types(result)
    errors = {site: _errors(alike[site]) | _errors(own[site]) for site in result.sites}
    measured = {site: own[site] or alike[site] for site in result.sites}
    missing = sum(
        trace.seconds
        for site, trace in result.sites.items()
        if not (_errors(own[site]) or unsuited.get(site))
    )
    by_place = _times(result, measured, emulations, casts)
    # A tuning lowers what the source shows, packages, and what PyTorch makes itself.
    fixed = {
        site
        for site, trace in result.sites.items()
        if is_native_anywhere(trace)
        or not (
            site in project.sites or matches(module_of(site), packages) or not is_in_source(site)
        )
    }
    integers = {site for site, trace in result.sites.items() if are_whole(*trace.dtypes)}
    whole = sum(site.seconds for site in result.sites.values())
    share = min(whole / result.seconds, 1.0)
    places = []
    for device, times in by_place.items():
        stay = fixed if device is None else fixed | integers
        native = stay if device is not None else stay | set(filter(unsuited.get, result.sites))
        times.update({site: {"native": times[site]["native"]} for site in native})
        # Products that no scheme takes keep their share of the time, as the rest of the program.
        operators = [
            Operator(site, local_errors=errors[site], predicted=its)
            for site, its in times.items()
            if site not in stay
        ]
        part = share * (1 - sum(result.sites[site].seconds for site in stay) / whole)
        places.append(gains.place(device, part, operators, budget))
    return Estimate(
        result.seconds,
        share,
        tuple(_products(program, result, errors, by_place, unsuited)),
        tuple(sorted(places, key=lambda place: (place.device is not None, place.seconds))),
        missing / whole,
        result.children,
        "" if on_gpu else why_all_native(result.sites),
    )


def short_name(device: str) -> str:
    """A GPU's name without its maker and its size: H200, A100, RTX 3090."""
    for word in MAKERS:
        device = device.removeprefix(word)
    return device.partition("-")[0]


def _lower(name: str) -> tuple[str, ...]:
    return tuple(scheme for rung in ladder(name) for scheme in rung if scheme != "native")


def _by_types(result: Result) -> dict[str, list[MeasuredProduct]]:
    """Site → what was measured of sites of its types; nothing where no scheme takes them."""
    by_types: dict[frozenset[str], list[MeasuredProduct]] = defaultdict(list)
    for product in result.alone:
        by_types[frozenset(result.sites[product.site].dtypes)].append(product)
    return {
        site: by_types[frozenset(trace.dtypes)]
        if any(prod(shape) for *shape, _ in trace.shapes)
        else []
        for site, trace in result.sites.items()
    }


def _errors(found: Sequence[MeasuredProduct]) -> dict[str, float]:
    by_scheme: dict[str, list[float]] = defaultdict(list)
    for product in found:
        for scheme, error in product.errors.items():
            by_scheme[scheme].append(nan if error is None else error)
    return {scheme: largest(errors) for scheme, errors in by_scheme.items()}


SiteTimes = dict[str, dict[str, float]]
"""Site → scheme → seconds of its calls."""


def _times(
    result: Result,
    measured: Mapping[str, Sequence[MeasuredProduct]],
    emulations: Sequence[str],
    casts: Sequence[str],
) -> dict[str | None, SiteTimes]:
    """Machine → the times of the products: measured here (None), predicted for known GPUs."""
    times = [one.times for found in measured.values() for one in found]
    taken = {scheme for its in times for scheme in its if its[scheme]}
    schemes = (*emulations, "exact") if taken.intersection(emulations) else casts
    here: SiteTimes = {}
    for site, trace in result.sites.items():
        ratios = {scheme: site_ratio(trace, measured[site], scheme) for scheme in schemes}
        here[site] = {"native": trace.seconds} | {
            scheme: trace.seconds * ratio.mean
            for scheme, ratio in ratios.items()
            if isinstance(ratio, Ratio)
        }
    places: dict[str | None, SiteTimes] = {None: here}
    for name in device_model.names():
        try:
            cost = DeviceCost.of(name)
        except DeviceError:  # no kernels for it
            continue
        places[short_name(cost.device)] = {
            site: {scheme: cost(site, trace, scheme) for scheme in ("native", *emulations)}
            for site, trace in result.sites.items()
        }
    return places


def _products(
    program: Program,
    result: Result,
    errors: Mapping[str, Mapping[str, float]],
    by_place: Mapping[str | None, SiteTimes],
    unsuited: Mapping[str, str],
) -> list[EstimatedProduct]:
    """The call sites, longest first. In a notebook, lines are counted in a cell."""
    known = places_of(program, result.rewritten, set(map(module_of, result.sites)))
    known |= torch_places(known, result.torch, result.sites, program.filename)
    made = []
    for site, trace in sorted(result.sites.items(), key=lambda item: -item[1].seconds):
        path, place = known.get(site, ("", None))
        speeds = {
            device or "here": {
                scheme: times[site]["native"] / seconds
                for scheme, seconds in times[site].items()
                if scheme != "native" and seconds
            }
            for device, times in by_place.items()
        }
        line, expression = (place.line, place.expression) if place else (0, "(called by name)")
        found = (trace.calls, trace.seconds, errors[site], speeds, unsuited.get(site, ""))
        made.append(EstimatedProduct(site, path, line, expression, *found))
    return made
