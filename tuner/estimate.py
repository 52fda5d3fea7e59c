"""The possible gain of a program, from its products' shares of the time, and in words.

Times and errors of single products are known for each scheme, so no run of the program is needed.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf, isfinite

from mixpert_py.tuner.prediction import ErrorModel, choose
from mixpert_py.tuner.records import Operator, Schemes

WORTH = 1.2  # the least gain that is worth anyone's time
LARGEST = 100.0  # gains beyond it are written as this


@dataclass(frozen=True, slots=True)
class Place:
    """The likely gain on one machine.

    device: the short name of a GPU, for which times are predicted; None for this machine. gain: of
    the program. seconds: of the products under the plan. plan: the schemes that make the gain.
    scheme: the scheme of all products if `mixpert run --scheme` makes the gain; None if tuning
    does. error: the program's predicted error.
    """

    device: str | None
    gain: float
    seconds: float
    plan: Schemes
    scheme: str | None = None
    error: float = 0.0

    @property
    def name(self) -> str:
        """The place as words of a sentence."""
        return "here" if self.device is None else f"on {_article(self.device)} {self.device}"


def program_gain(share: float, products_gain: float) -> float:
    """The gain of a program whose products, a share of its time, gain by a factor (Amdahl)."""
    left = 1 - share + (share / products_gain if products_gain else inf)
    return 1 / left if left > 0 else inf


def ceiling(share: float) -> float:
    """The gain if the products took no time."""
    return program_gain(share, inf)


def likely_plan(operators: Sequence[Operator], budget: float) -> dict[str, str]:
    """The fastest plan whose predicted error is within the budget, before any run is known.

    operators: `predicted` has the times of the schemes that may be chosen, and of the native one.
    The prediction is the one with which a tuning begins: errors of products add up like independent
    errors, and each reaches the result unchanged.
    """
    errors = ErrorModel(operators, 0.0)
    options = [_options(operator) for operator in operators]
    pairs = list(zip(operators, options, strict=True))
    times = [[x.predicted[scheme] for scheme in its] for x, its in pairs]
    squares = [[errors.square(x, scheme) for scheme in its] for x, its in pairs]
    chosen = choose(times, squares, budget**2)[0] or (0,) * len(pairs)
    return {x.id: its[i] for (x, its), i in zip(pairs, chosen, strict=True)}


def place(
    device: str | None,
    share: float,
    operators: Sequence[Operator],
    budget: float,
    tuned: Collection[str],
) -> Place:
    """The likely gain on a machine for which the operators have their times.

    tuned: the sites that `mixpert tune` can lower. The others take another scheme only if all
    products do, which is proposed if it is faster than the best plan of a tuning.
    """
    plan = likely_plan([operator for operator in operators if operator.id in tuned], budget)
    best = _place(device, share, operators, plan)
    others = {x.id for x in operators} - set(tuned)
    if not others:
        return best
    errors = ErrorModel(operators, 0.0)
    for scheme in dict.fromkeys(name for x in operators for name in _options(x)[1:]):
        # A product that does not take the scheme stays native by itself.
        plan = {x.id: scheme if scheme in _options(x) else "native" for x in operators}
        found = _place(device, share, operators, plan, scheme)
        lowers_others = any(plan[site] != "native" for site in others)
        if lowers_others and errors.error(plan) <= budget and found.gain > best.gain:
            best = found
    return best


def worth(places: Sequence[Place]) -> Place | None:
    """The place where an effort is worth it: this machine, else the first GPU, else None."""
    return next((place for place in places[:2] if place.gain >= WORTH), None)


def verdict(share: float, places: Sequence[Place], budget: str) -> str:
    """A sentence that says whether an effort is worth it.

    places: this machine, then GPUs, of which the first is named. budget: as it was typed.
    """
    here, *gpus = places
    gpu, best = gpus[0] if gpus else None, worth(places)
    products = f"Products are {100 * share:.0f} % of the time"
    if ceiling(share) < WORTH:
        there = ", and on a GPU where their share is the same" if gpu else ""
        return f"{products}: at most {times_text(ceiling(share))} here{there}; not worth it."
    on_gpu = f", {times_text(gpu.gain)} {gpu.name}" if gpu else ""
    gains = f"{times_text(here.gain)} is likely at {budget} here{on_gpu}"
    if best is None:
        return f"{products}, but {gains}; not worth it."
    if best is here:
        return f"Worth it: {gains}."
    return (
        f"Worth it {best.name}: {times_text(best.gain)} is likely at {budget} if products have the "
        f"same share of the time there; {times_text(here.gain)} here."
    )


def times_text(gain: float) -> str:
    """A gain as text: 1.25×."""
    return f"{gain:.2f}×" if gain < LARGEST else f"over {LARGEST:.0f}×"


def _options(operator: Operator) -> list[str]:
    """The schemes of an operator whose time and error are known, the native product first."""
    known = operator.local_errors
    return ["native"] + [
        scheme
        for scheme in operator.predicted
        if scheme != "native" and isfinite(known.get(scheme, inf))
    ]


def _place(
    device: str | None,
    share: float,
    operators: Sequence[Operator],
    plan: Schemes,
    scheme: str | None = None,
) -> Place:
    """A place under a plan; sites that are not in it stay native."""
    before = sum(x.predicted["native"] for x in operators)
    after = sum(x.predicted[plan.get(x.id, "native")] for x in operators)
    gain = program_gain(share, before / after if after else inf) if before else 1.0
    lowered = [x for x in operators if x.id in plan]
    return Place(device, gain, after, plan, scheme, ErrorModel(lowered, 0.0).error(plan))


def _article(name: str) -> str:
    """The article before an abbreviation, by the sound of its first letter."""
    return "an" if name[:1].upper() in "AEFHILMNORSX" else "a"
