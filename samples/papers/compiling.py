"""The kernels of all exhibits, compiled by several processes into the user's caches."""

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, wait
from functools import partial
from multiprocessing import get_context

import numpy as np

from samples.papers import markidis, tiles
from samples.papers.place import SCHEMES, SKEWED, SQUARES, Place
from tests.benchmarks.apps import end_with_parent
from tests.benchmarks.timing import error_line

Case = Callable[[], None]


def compile_all(small: bool) -> list[str]:
    """At the shapes that are measured. Returns what failed: its exhibit will say so, too."""
    groups = [_products(name, small) for name in SCHEMES]
    groups += [[partial(_ring, n, stages, small)] for n in tiles.SIZES for stages in tiles.STAGE]
    jobs = min(len(groups), os.cpu_count() or 1)
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=end_with_parent) as pool:
        made = [pool.submit(_one_by_one, group) for group in groups]
        try:
            wait(made)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    failed: list[str] = []
    for one in made:
        error = one.exception()  # of a process that died
        failed += [str(error)] if error else one.result()
    return list(dict.fromkeys(failed))


def _products(name: str, small: bool) -> list[Case]:
    """A scheme at every shape, in one process: packing is compiled once."""
    place = Place(np, {}, "", small=small)
    shapes = [tuple(map(place.size, shape)) for shape in (*((n, n, n) for n in SQUARES), *SKEWED)]
    operands: list[tuple[tuple[int, ...], ...]] = [((m, k), (k, n)) for m, k, n in shapes]
    if name in markidis.BATCHED:
        operands += [(stack, stack) for n in markidis.COUNTS if (stack := (place.size(n), 16, 16))]
    return [partial(_product, name, *shapes) for shapes in operands]


def _one_by_one(cases: list[Case]) -> list[str]:
    failed = []
    for case in cases:
        try:
            case()
        except Exception as error:
            failed.append(error_line(error))
    return failed


def _product(name: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    import cupy

    from mixpert_py.runtime.api import matmul

    matmul(cupy.ones(a, "float32"), cupy.ones(b, "float32"), scheme=name, backend="cuda")
    cupy.cuda.Device().synchronize()


def _ring(n: int, stages: int, small: bool) -> None:
    import cupy

    calls = tiles.by_stages(Place(cupy, {}, "", small=small), n)[1]
    if stages in calls:
        calls[stages]()
    cupy.cuda.Device().synchronize()
