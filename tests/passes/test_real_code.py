"""Code that people wrote: whatever is in a file, rewriting it keeps its meaning.

A sample runs always; `pytest -m slow tests/passes/test_real_code.py` takes every file.
"""

import ast
import gc
import importlib.util
import random
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from mixpert_py import sources
from mixpert_py.passes.finder import HINT
from mixpert_py.sources.in_memory import OBJECTS
from tests.every_check import EVERY_CHECK
from tests.passes.test_pipeline import require_safe

PACKAGES = ("numpy", "scipy", "sklearn", "networkx", "sympy")
SAMPLE_BYTES = 800_000 if EVERY_CHECK else 250_000


def folder(name: str) -> str | None:
    """Where the standard library, or an installed package, is."""
    if name == "stdlib":
        return sysconfig.get_path("stdlib")
    spec = importlib.util.find_spec(name)
    return spec.submodule_search_locations[0] if spec and spec.submodule_search_locations else None


def files(name: str) -> list[str]:
    place = folder(name)
    if place is None:
        pytest.skip(f"{name} is not installed")
    return [it for it in sources.files_of_projects([place], ()) if it.endswith(".py")]


def failure(path: str) -> str | int:
    """How many products a file has; in words, what does not hold of it."""
    source = Path(path).read_bytes()
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):
        return 0  # the standard library's tests have files that are no Python
    try:
        return require_safe(source)
    except Exception as error:
        return f"{path}: {type(error).__name__}: {str(error)[:200]}"


def hold(paths: Sequence[str], jobs: int) -> int:
    """Require the properties of all files; returns how many products are in them."""
    with ProcessPoolExecutor(jobs, initializer=gc.set_threshold, initargs=(OBJECTS,)) as pool:
        answers = list(pool.map(failure, paths, chunksize=4))
    failures = [answer for answer in answers if isinstance(answer, str)]
    assert not failures, "\n".join(failures)
    return sum(answer for answer in answers if isinstance(answer, int))


def test_a_sample() -> None:
    """Files with products, and of the standard library, up to some size in all."""
    several = [path for name in ("stdlib", *PACKAGES[:4]) if folder(name) for path in files(name)]
    left = SAMPLE_BYTES
    sample = []
    for path in random.Random(7).sample(several, len(several)):
        text = Path(path).read_bytes()
        if b"@ " not in text and not HINT.search(text.decode("utf-8", "replace")):
            continue
        if len(text) <= left:
            left -= len(text)
            sample.append(path)
    assert hold(sample, 1) > 20
