"""Stress: random products, and threads that multiply at the same time.

`python -m tests.benchmarks.stress --minutes 60` runs every kind in turn, on the GPU if there is
one; `test_stress.py` runs each kind for some seconds. Everything is drawn from a seed, and a fault
names its seed: `--seed N --only KIND --minutes 0` shows it again, with the same `--largest`.

Of several processes each takes some of the seeds; of random products, some of the schemes, so that
no other process compiles their kernels.
"""

import os
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import count
from multiprocessing import get_context
from time import monotonic
from types import ModuleType
from typing import Any, NamedTuple

import click
import numpy as np

import mixpert_py
from mixpert_py.cli import main
from mixpert_py.errors import MixPertError
from mixpert_py.runtime.reference import emulation
from mixpert_py.runtime.request import Product, Request
from mixpert_py.runtime.scheme import Scheme
from mixpert_py.runtime.schemes import SCHEMES, get
from mixpert_py.runtime.splitter import Digits, FloatSlices, Splitter
from tests.benchmarks import machine
from tests.benchmarks.contract import UNIT
from tests.benchmarks.families import EVERYDAY, FAMILIES, Array, Numbers, narrow, of_parts, wide

Fault = str
ALL = {**FAMILIES, **EVERYDAY}
# Errors on these families are those of normal data: no element of a row is small beside the others.
TAME = ("normal", "uniform [0, 1)", "uniform [-1, 1)", "integers")
NAMES = ("faithful", "crt", *(name for name, it in SCHEMES.items() if isinstance(it, Scheme)))
LAYOUTS = ("C", "F", "strided", "negative", "offset", "repeated")
SPECIALS = ("", "", "", "", "not finite", "zeros")
COMPLEX = {"float32": "complex64", "float64": "complex128"}
# Products of an operand with its own transpose, or conjugate transpose; x @ x of a symmetric x.
MIRRORED = ("x @ x.T", "x.T @ x", "swapaxes", "einsum", "x @ x.conj().T", "x.conj().T @ x", "x @ x")
EINSUM = "...ik,...jk->...ij"
STACKS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    *(((), ()),) * 8,
    *(((3,), (3,)), ((4,), ()), ((), (5,)), ((2, 3), (3,)), ((0,), (0,))),
)
EDGES = (0, 1, 2, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 192, 255, 256, 257)
UNIT64 = 2.0**-53
ELEMENT_MARGIN = 64.0  # how far beyond its error on normal data a scheme may be at one element
NORM_MARGIN = 4.0  # the same of the whole product, on tame families
MOST_FAULTS = 20  # of a kind, in a process
THREADS = 8


@dataclass(frozen=True, slots=True)
class Case:
    """One product (…, m, k) by (…, k, n), as its seed draws it."""

    seed: int
    scheme: str
    family: str
    dtype: str
    m: int
    k: int
    n: int
    stacks: tuple[tuple[int, ...], tuple[int, ...]]
    layouts: tuple[str, str]
    special: str
    into: bool  # an array that is given as `out`
    mirrored: str = ""  # one of MIRRORED; "" of two arrays

    def __str__(self) -> str:
        stacks = f", stacks {self.stacks}" if self.stacks != ((), ()) else ""
        return (
            f"seed {self.seed}: {self.scheme}, {self.dtype} {self.m} × {self.k} × {self.n}{stacks}"
            f", {self.family}, {' by '.join(self.layouts)} {self.special}{' out' * self.into}"
            f" {self.mirrored}".rstrip()
        )


@dataclass(frozen=True, slots=True)
class Place:
    """backend: "reference" or "cuda". xp: NumPy or CuPy. largest: no dimension is above it.
    checked: kind of product → how many, and the largest error over what is allowed.
    """

    backend: str
    xp: ModuleType
    largest: int
    checked: dict[str, tuple[int, float]] = field(default_factory=dict)

    def note(self, case: Case, ratio: float) -> None:
        """Count a product of a kind, and keep its error over what is allowed if it is the most."""
        kind = f"{case.dtype}, {case.mirrored or 'two arrays'}"
        number, most = self.checked.get(kind, (0, 0.0))
        self.checked[kind] = number + 1, max(most, ratio)

    def product(self, a: Array, b: Array, scheme: str, **given: Any) -> Array:
        """a @ b under a scheme, without NumPy's warnings."""
        with np.errstate(all="ignore"):
            return mixpert_py.matmul(a, b, scheme=scheme, backend=self.backend, **given)

    def on_host(self, x: Array) -> Array:
        """An array of this place as a NumPy array."""
        return x.get() if self.backend == "cuda" else x

    def stream(self) -> AbstractContextManager[Any]:
        """A stream of its own for a thread."""
        if self.backend == "cuda":
            return self.xp.cuda.Stream(non_blocking=True)  # type: ignore[no-any-return]
        return nullcontext()

    def wait(self) -> None:
        """Wait until the device has done all that was enqueued."""
        if self.backend == "cuda":
            self.xp.cuda.runtime.deviceSynchronize()


def draw(seed: int, largest: int) -> Case:
    """The product of a seed."""
    rng = random.Random(seed)
    stacks = rng.choice(STACKS)
    limit = largest if stacks == ((), ()) else min(largest, 64)

    def length() -> int:
        edge = rng.choice([edge for edge in EDGES if edge <= limit])
        return edge if rng.random() < 0.5 else rng.randint(1, limit)

    scheme = rng.choice(NAMES)
    dtype = "float64" if scheme.startswith("crt") or rng.random() < 0.3 else "float32"
    if scheme == "faithful":
        dtype = "float32"
    family, special = rng.choice(tuple(ALL)), rng.choice(SPECIALS)
    layouts = rng.choice(LAYOUTS), rng.choice(LAYOUTS)
    m, k, n = length(), length(), length()
    into, mirrored = rng.random() < 0.1, rng.choice(MIRRORED) if rng.random() < 0.4 else ""
    if rng.random() < 0.3:
        dtype = COMPLEX[dtype]
    if mirrored:
        stacks, n = stacks[:1] * 2, m
        k = m if mirrored == "x @ x" else k
        into = into and mirrored != "einsum"
    return Case(seed, scheme, family, dtype, m, k, n, stacks, layouts, special, into, mirrored)


def operands(case: Case, xp: ModuleType) -> tuple[Array, Array]:
    """The operands of a case."""
    numbers = Numbers(np, case.seed)
    rng = random.Random(f"specials {case.seed}")
    made = []
    for side, (stack, layout) in enumerate(zip(case.stacks, case.layouts, strict=True)):
        size = int(np.prod(stack, dtype=int))
        made_of = []
        for _ in range(1 + (case.dtype in COMPLEX.values())):
            pairs = [ALL[case.family](numbers, case.m, case.k, case.n) for _ in range(max(size, 1))]
            both = np.stack([pair[side] for pair in pairs])
            with np.errstate(all="ignore"):
                made_of.append(narrow(both, precision(case))[:size])
        x = of_parts(*made_of)
        x = x.reshape(*stack, *x.shape[1:])
        if case.mirrored == "x @ x":  # the lower half, and its mirror image
            x = np.tril(x) + np.tril(x, -1).swapaxes(-1, -2)
        if x.size and case.special == "not finite" and side == 0:
            x.reshape(-1)[rng.randrange(x.size)] = rng.choice((np.nan, np.inf, -np.inf))
        if x.size and case.special == "zeros":
            x[..., rng.randrange(x.shape[-2]), :] = 0
        if case.mirrored:
            return mirrored(xp.asarray(x), layout, case.mirrored, xp)
        made.append(laid_out(xp.asarray(x), layout, xp))
    return made[0], made[1]


def precision(case: Case) -> "np.dtype[Any]":
    """The type of a case's real numbers."""
    return np.dtype(np.dtype(case.dtype).char.lower())


def mirrored(x: Array, layout: str, kind: str, xp: ModuleType) -> tuple[Array, Array]:
    """The operands of a product of x (…, m, k) with itself."""
    is_second = kind.endswith("@ x") and kind != "x @ x"
    one = laid_out(x.swapaxes(-1, -2).copy() if is_second else x, layout, xp)
    if kind == "x @ x":
        return one, one
    other = (one.conj() if "conj" in kind else one).swapaxes(-1, -2)
    return (other, one) if is_second else (one, other)


def laid_out(x: Array, layout: str, xp: ModuleType) -> Array:
    """The same matrices, or one row over and over for "repeated", in another place in memory."""
    rows, columns = x.shape[-2:]
    if layout == "F":
        return x.swapaxes(-1, -2).copy().swapaxes(-1, -2)
    if layout == "strided":
        room = xp.zeros((*x.shape[:-2], 2 * rows, 3 * columns), x.dtype)
        room[..., ::2, ::3] = x
        return room[..., ::2, ::3]
    if layout == "negative":
        return x[..., ::-1, ::-1].copy()[..., ::-1, ::-1]
    if layout == "offset":  # not where a vector load could begin
        room = xp.zeros((*x.shape[:-2], rows + 1, columns + 3), x.dtype)
        room[..., 1:, 3:] = x
        return room[..., 1:, 3:]
    if layout == "repeated" and rows:
        return xp.broadcast_to(x[..., :1, :], x.shape)
    return x


def products(place: Place, seed: int) -> Iterator[Fault]:
    """One random product, held against the bound of its scheme."""
    case = draw(seed, place.largest)
    a, b = operands(case, place.xp)
    shape = (*np.broadcast_shapes(*case.stacks), case.m, case.n)
    out = place.xp.empty(shape, case.dtype) if case.into else None
    value = multiplied(place, case, a, b, **({} if out is None else {"out": out}))
    if value.shape != shape or value.dtype != case.dtype:
        yield f"{case}: the result is {value.dtype} {value.shape}, to be {case.dtype} {shape}"
        return
    if out is not None and value is not out:
        yield f"{case}: the result is not in `out`"
    if seed % 8 == 0 and not same_bits(value, multiplied(place, case, a, b)):
        yield f"{case}: another result when the product is made again"
    image = (value.conj() if "conj" in case.mirrored else value).swapaxes(-1, -2)
    is_right = not must_mirror(place, case) or same_bits(value, image)
    if not is_right and case.scheme == "crt":
        is_right = same_bits(value, multiplied(place, replace(case, scheme="native"), a, b))
    if not is_right:
        yield f"{case}: the result is not symmetric"
    x, y, value = map(place.on_host, (a, b, value))
    left, right = (np.broadcast_to(one, (*shape[:-2], *one.shape[-2:])) for one in (x, y))
    ratios = [0.0]
    for index in np.ndindex(*shape[:-2]):
        for fault in faults(case, left[index], right[index], value[index], ratios):
            yield f"{case}: matrix {index}: {fault}"
    place.note(case, max(ratios))
    is_digits = isinstance(it := get(case.scheme), Scheme) and isinstance(it.left, Digits)
    if place.backend == "cuda" and is_digits and case.family in TAME and not case.special:
        wanted = emulation.multiply(Request(x, y, case.scheme))
        # What leaves the slices is summed in the result's precision, by each backend in its order.
        assert isinstance(wanted, Product)
        if not wanted.outliers() and not same_bits(value, wanted.value):
            yield f"{case}: not the bits of the reference backend"


def multiplied(place: Place, case: Case, a: Array, b: Array, **given: Any) -> Array:
    """a @ b, or the einsum that is."""
    if case.mirrored != "einsum":
        return place.product(a, b, case.scheme, **given)
    given = {"scheme": case.scheme, "backend": place.backend, "native": place.xp.einsum}
    with np.errstate(all="ignore"):
        return mixpert_py.einsum(EINSUM, a, b.swapaxes(-1, -2), **given)


def must_mirror(place: Place, case: Case) -> bool:
    """Return whether C has to equal its transpose, or its conjugate transpose, to the last bit,
    unless `crt` has taken the native product.
    """
    entry = get(case.scheme)
    if case.mirrored in ("", "x @ x"):
        return False
    if entry.moduli if isinstance(entry, Scheme) else case.scheme == "crt":
        return True  # sums are exact
    is_alike = entry.left == entry.right if isinstance(entry, Scheme) else True
    is_view = case.mirrored in ("x @ x.T", "x.T @ x", "swapaxes", "einsum")
    is_real = np.dtype(case.dtype).kind == "f"
    return is_view and is_real and is_alike and place.backend == "cuda"


def in_reals(a: Array, b: Array, value: Array) -> tuple[Array, Array, Array]:
    """A complex product as [[Re A, −Im A], [Im A, Re A]] times [Re B; Im B], which has the rows of
    Re C and then those of Im C; a real one as it is.
    """
    if a.dtype.kind != "c":
        return a, b, value
    left = np.block([[a.real, -a.imag], [a.imag, a.real]])
    return left, np.concatenate([b.real, b.imag]), np.concatenate([value.real, value.imag])


def faults(
    case: Case, a: Array, b: Array, value: Array, ratios: list[float] | None = None
) -> Iterator[Fault]:
    """The ways in which a product of two matrices is beyond what its scheme allows.

    ratios: takes the largest error over what is allowed.
    """
    dtype = precision(case)
    with np.errstate(all="ignore"):
        left, right, made = in_reals(wide(a), wide(b), wide(value))
        k = left.shape[1]
        finite = np.isfinite(left), np.isfinite(right)
        rows, columns = finite[0].all(axis=1), finite[1].all(axis=0)
        of_rows = abs(left).max(axis=1, initial=0.0, where=finite[0])
        of_columns = abs(right).max(axis=0, initial=0.0, where=finite[1])
        reached = ~(rows[:, None] & columns)
        native = left @ right
        if bool((np.isfinite(made) != np.isfinite(native))[reached].any()):
            yield "NaN or Inf stands at other places than in the native product"
        left, right = np.where(rows[:, None], left, 0.0), np.where(columns, right, 0.0)
        exact, absolute = left @ right, abs(left) @ abs(right)
        holds = ~reached & (absolute < 0.9 * float(np.finfo(dtype).max))
        error = np.where(holds, abs(made - exact), 0.0)
        error = np.where(np.isnan(error), np.inf, error)
        unit = UNIT64 if dtype == np.float64 else UNIT
        smallest = float(np.finfo(dtype).smallest_subnormal)
        floor = 4 * (k + 16) * unit * absolute + (k + 1) * smallest
        size = of_rows[:, None] * of_columns
        if is_grouped(case) or not has_range(case):
            size[...] = size.max(initial=0.0)
        allowed = floor + ELEMENT_MARGIN * stated_error(case) * k * size
        for loss, other in zip(losses(case), (of_columns, of_rows), strict=True):
            allowed += k * loss * other.max(initial=0.0)
        beyond = ~(error <= allowed) & holds & (case.family in TAME or has_range(case))
        if ratios is not None and bool(holds.any()):
            tried = holds & (case.family in TAME or has_range(case)) & (allowed > 0)
            ratios.append(float(np.where(tried, error / allowed, 0.0).max()))
        if bool(beyond.any()):
            most = float((error / allowed)[beyond].max())
            yield f"{int(beyond.sum())} elements beyond the bound, by up to {most:.2e}×"
        count = int((holds & (exact != 0)).sum())
        if case.family in TAME and min(k, count) >= 16 and "repeated" not in case.layouts:
            norm = float((np.where(holds, exact, 0.0) ** 2).sum()) ** 0.5
            off = float((error**2).sum()) ** 0.5
            if off > NORM_MARGIN * (stated_error(case) + k * unit) * norm:
                yield f"the error is {off / norm:.1e} of the product's norm"


def stated_error(case: Case) -> float:
    """The error that a scheme states for normal data; 0 of the schemes that are as accurate as
    the native product, which `faults` allows its own rounding.
    """
    entry = get(case.scheme)
    return entry.error if isinstance(entry, Scheme) else 0.0


def is_grouped(case: Case) -> bool:
    """Whether several rows of the scheme share one exponent."""
    return any(getattr(side, "group", 1) > 1 for side in _splitters(case))


def has_range(case: Case) -> bool:
    """Whether the scheme takes numbers beyond the range of halves; some do not scale them."""
    return not any(
        isinstance(side, FloatSlices) and side.element.name == "float16" and not side.scaled
        for side in _splitters(case)
    )


def losses(case: Case) -> tuple[float, ...]:
    """Upper bounds of what an entry of A, and of B, loses below the smallest half, where halves are
    not scaled.
    """
    sides = [side for side in _splitters(case) if isinstance(side, FloatSlices)]
    if any(side.scaled for side in sides):
        return 0.0, 0.0
    lost = (side.element.smallest * 2.0 ** (-side.step * (side.count - 1)) for side in sides)
    return tuple(lost) or (0.0, 0.0)


def _splitters(case: Case) -> tuple[Splitter, ...]:
    entry = get(case.scheme)
    return (entry.left, entry.right) if isinstance(entry, Scheme) else ()


def same_bits(one: Array, other: Array) -> bool:
    """Whether two arrays hold the same numbers, NaN equal to NaN."""
    same = (one == other) | ((one != one) & (other != other))
    return one.shape == other.shape and bool(same.all())


def threads(place: Place, seed: int) -> Iterator[Fault]:
    """Threads that multiply at the same time: every product has the bits that it has alone."""
    tasks = []
    for number in range(2 * THREADS):
        case = draw(1000 * seed + number, min(place.largest, 128))
        a, b = operands(case, place.xp)
        tasks.append((case, a, b, digest(place, case, a, b)))
    place.wait()
    start = threading.Barrier(THREADS)

    def work(number: int) -> list[Fault]:
        order = random.Random(f"{seed} {number}").choices(tasks, k=len(tasks))
        start.wait()
        with place.stream():
            made = [(case, digest(place, case, a, b), wanted) for case, a, b, wanted in order]
        return [
            f"{case}: {found} in a thread, {wanted} alone"
            for case, found, wanted in made
            if found != wanted
        ]

    with ThreadPoolExecutor(THREADS) as pool:
        for found in pool.map(work, range(THREADS)):
            yield from found


def digest(place: Place, case: Case, a: Array, b: Array) -> str:
    """Type, shape and bits of a product; or the error that is raised."""
    try:
        value: Any = place.product(a, b, case.scheme)
        on_host = value.get() if place.backend == "cuda" else value
        bits = sha256(np.ascontiguousarray(on_host).tobytes()).hexdigest()
        return f"{value.dtype} {value.shape} {bits[:12]}"
    except MixPertError as error:
        return f"{type(error).__name__}: {error}"


KINDS: dict[str, Callable[[Place, int], Iterator[Fault]]] = {
    "products": products,
    "threads": threads,
}


def here(largest: int) -> Place:
    """The GPU, or the reference backend where there is none."""
    try:
        return Place("cuda", machine.gpu(), largest)
    except MixPertError:
        return Place("reference", np, largest)


class Found(NamedTuple):
    """What a process has found. checked: see `Place`."""

    backend: str
    seeds: int
    faults: list[Fault]
    checked: dict[str, tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Stress:
    """One kind, from a seed on: so many seconds, and `most` seeds of a process, but one at least.

    largest: no dimension of a product is above it. reference: in NumPy, also where there is a GPU.
    processes: that share the seeds, and so many GPUs.
    """

    kind: str
    seconds: float
    seed: int = 0
    largest: int = 2048
    reference: bool = False
    processes: int = 1
    gpus: int = 1
    most: int = 1 << 62

    def __call__(self, number: int = 0) -> Found:
        """Run the seeds of one process."""
        if self.gpus > 1:
            os.environ["CUDA_VISIBLE_DEVICES"] = str(number % self.gpus)
        largest, end = self.largest, monotonic() + self.seconds
        place = Place("reference", np, largest) if self.reference else here(largest)
        faults: list[Fault] = []
        for done, seed in enumerate(self._seeds(number), 1):
            try:
                faults += KINDS[self.kind](place, seed)
            except Exception as error:
                faults.append(f"seed {seed}: {type(error).__name__}: {error}")
            if monotonic() > end or done >= self.most or len(faults) > MOST_FAULTS:
                break
        return Found(place.backend, done, faults, place.checked)

    def _seeds(self, number: int) -> Iterator[int]:
        if self.kind != "products":
            return count(self.seed + number, self.processes)
        schemes = NAMES[number :: self.processes]
        return (seed for seed in count(self.seed) if draw(seed, self.largest).scheme in schemes)


def table(checked: Iterable[tuple[str, tuple[int, float]]]) -> str:
    """How many products of each kind, and of all, were checked."""
    kinds: dict[str, tuple[int, float]] = {}
    for kind, (number, worst) in checked:
        before, most = kinds.get(kind, (0, 0.0))
        kinds[kind] = before + number, max(most, worst)
    rows = [
        [kind, f"{number:,}", f"{worst:.2f}"] for kind, (number, worst) in sorted(kinds.items())
    ]
    rows.append(["all", f"{sum(number for number, _ in kinds.values()):,}", ""])
    return machine.table(["", "products", "largest error over what is allowed"], rows)


@click.command()
@click.option("--minutes", default=60.0, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--only", type=click.Choice(list(KINDS)), multiple=True)
@click.option("--largest", default=2048, show_default=True, help="No dimension is above it.")
@click.option("--reference", is_flag=True, help="In NumPy, also where there is a GPU.")
@click.option("--processes", type=click.IntRange(1, len(NAMES)), default=1, show_default=True)
@click.option("--gpus", default=1, show_default=True, help="Of this machine.")
def command(minutes: float, only: tuple[str, ...], processes: int, **given: Any) -> int:
    """Run every kind in turn; exit code 1 where a fault is found."""
    failed, kinds = False, only or KINDS
    for kind in kinds:
        each = Stress(kind, 60 * minutes / len(kinds), processes=processes, **given)
        with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
            found = [*pool.map(each, range(processes))]
        faults = [fault for one in found for fault in one.faults]
        seeds = sum(one.seeds for one in found)
        click.echo(f"{kind} on {found[0].backend}: {seeds} seeds, {len(faults)} faults")
        for fault in faults:
            click.echo(f"  {fault}")
        if kind == "products":
            click.echo(table(item for one in found for item in one.checked.items()))
        failed |= bool(faults)
    return int(failed)


if __name__ == "__main__":
    main(command, "python -m tests.benchmarks.stress")
