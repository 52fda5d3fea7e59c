"""Allocations that fail: the product is right nevertheless, or a MemoryError is raised."""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

import numpy as np

import mixpert_py
from mixpert_py.runtime.gpu.foreign import on_host
from tests.soak.verdict import Verdict

NO_MEMORY = 2  # cudaErrorMemoryAllocation
MOST_SHOWN = 20


class Product(NamedTuple):
    """Two functions: `make` multiplies by a scheme, `native` as the program did before."""

    make: Callable[[], Any]
    native: Callable[[], Any]


class Allocator(Protocol):
    """Counts allocations, makes some fail, and knows how many bytes are allocated."""

    count: int

    def failing(self, at: int, to_the_end: bool) -> AbstractContextManager[Any]:
        """Count anew; from here the allocation `at`, from 1 on, fails, or all from it on do."""

    def held(self) -> int:
        """Bytes that are allocated now."""


@dataclass(slots=True)
class Tally:
    """The outcomes of products with a failed allocation: how many there were of each."""

    as_alone: int = 0
    native: int = 0
    raised: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.as_alone + self.native + self.raised + len(self.wrong)


def gate(
    allocator: Allocator, products: Mapping[str, Product], report: Callable[[str], None]
) -> Verdict:
    """Every allocation of every product fails once alone, and once with all after it."""
    tally, most = Tally(), 0
    for name, product in products.items():
        before = len(tally.wrong)
        needed = _judge(name, product, allocator, tally)
        report("\n".join([f"{name}: {needed} allocations", *tally.wrong[before:]]))
        most = max(most, needed)
    return Verdict(
        "memory",
        f"{len(products)} kinds of products, {tally.count} times with an allocation that fails, "
        f"every one of up to {most}",
        f"{tally.as_alone} made all the same, {tally.native} natively, {tally.raised} "
        f"MemoryError; {len(tally.wrong)} wrong or leaking",
        not tally.wrong and tally.count > 0,
        on_gpu=True,
        figures={"wrong": tally.wrong[:MOST_SHOWN]},
    )


def _judge(name: str, product: Product, allocator: Allocator, tally: Tally) -> int:
    """Let every allocation of a product fail; returns how many it makes when none fails."""
    native = _bits(product.native())
    product.make()  # fills the caches, which hold memory from here on
    with allocator.failing(0, False):
        alone = _bits(product.make())
        needed = allocator.count
    for to_the_end in (False, True):
        for at in range(1, needed + 1):
            where = f"{name}, allocation {at} of {needed}{' and all after it' * to_the_end}"

            def fail(at: int = at, to_the_end: bool = to_the_end) -> str:
                with allocator.failing(at, to_the_end):
                    return _made(product)

            before = allocator.held()
            found = fail()
            if found == alone:
                tally.as_alone += 1
            elif found == native:
                tally.native += 1
            elif found == MemoryError.__name__:
                tally.raised += 1
            else:
                tally.wrong.append(f"{where}: {found}")
            if allocator.held() > before and _leaks(fail, allocator):
                tally.wrong.append(f"{where}: what it had taken is never given back")
    return needed


def _leaks(fail: Callable[[], str], allocator: Allocator) -> bool:
    """Whether each call allocates more. What is cached for the next product is allocated once."""
    gc.collect()
    before = allocator.held()
    fail()
    gc.collect()
    return allocator.held() > before


def _made(product: Product) -> str:
    """The digest of a product, or the name of the error raised; the product itself is released."""
    try:
        return _bits(product.make())
    except MemoryError:
        return MemoryError.__name__
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"


def _bits(value: Any) -> str:
    value = on_host(value)
    return f"{value.dtype} {value.shape} {sha256(value.tobytes()).hexdigest()[:16]}"


def products(xp: Any, size: int) -> dict[str, Product]:
    """Every way to a product on the device. xp: CuPy; size: of the matrices."""
    rng = np.random.default_rng(5)
    wide = rng.standard_normal((2, size, size))
    hosts = wide.astype(np.float32)
    a, b = map(xp.asarray, hosts)
    others = {
        "float64": tuple(map(xp.asarray, wide)),
        "stacks": tuple(xp.asarray(np.stack([x] * 3)) for x in hosts),
        "complex": tuple(xp.asarray(x + 1j * x[::-1]).astype(np.complex64) for x in hosts),
        "NumPy": tuple(hosts),
        "views": (a.T, b[::-1]),
    }

    def product(a: Any, b: Any, **given: Any) -> Product:
        make = partial(mixpert_py.matmul, a, b, **({"backend": "cuda"} | given))
        return Product(make, lambda: a @ b)

    named = {
        name: product(a, b, scheme=name)
        for name in ("faithful", "int8x1", "int8x6", "int8x10", "fp16x3", "mixpert-IV", "bf16x6")
    }
    named |= {f"int8x6, {name}": product(*pair, scheme="int8x6") for name, pair in others.items()}
    named["guarantee"] = product(a, b, guarantee="componentwise")
    certified = product(a, b, scheme="int8x6", return_certificate=True)
    named["certificate"] = certified._replace(make=lambda: certified.make()[0])
    named["packed before"] = Product(
        lambda: mixpert_py.matmul(a, mixpert_py.pack(b, "int8x6"), backend="cuda"), lambda: a @ b
    )

    def into() -> Any:
        out = xp.empty((size, size), np.float32)
        return mixpert_py.matmul(a, b, scheme="int8x6", backend="cuda", out=out)

    named["out"] = Product(into, lambda: a @ b)
    return named


class CupyAllocator:
    """Replaces CuPy's two allocators: of device memory, and of page-locked memory of the host."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._pool = cupy.get_default_memory_pool()
        self._pinned = cupy.get_default_pinned_memory_pool()
        self._at, self._to_the_end = 0, False
        self.count = 0

    @contextmanager
    def installed(self) -> Iterator["CupyAllocator"]:
        """Let all of CuPy's allocations go through this one inside the block."""
        cuda = self._cupy.cuda
        cuda.set_allocator(self._on_device)
        cuda.set_pinned_memory_allocator(self._on_host)
        try:
            yield self
        finally:
            cuda.set_allocator(self._pool.malloc)
            cuda.set_pinned_memory_allocator(self._pinned.malloc)

    @contextmanager
    def failing(self, at: int, to_the_end: bool) -> Iterator[None]:
        self.count, self._at, self._to_the_end = 0, at, to_the_end
        try:
            yield
        finally:
            self._at, self._to_the_end = 0, False

    def held(self) -> int:
        return int(self._pool.used_bytes())

    def _on_device(self, size: int) -> Any:
        if self._fails():
            raise self._cupy.cuda.memory.OutOfMemoryError(size, self._pool.total_bytes())
        return self._pool.malloc(size)

    def _on_host(self, size: int) -> Any:
        if self._fails():  # CuPy makes no MemoryError of this one
            raise self._cupy.cuda.runtime.CUDARuntimeError(NO_MEMORY)
        return self._pinned.malloc(size)

    def _fails(self) -> bool:
        self.count += 1
        return bool(self._at) and (
            self.count == self._at or (self._to_the_end and self.count > self._at)
        )
