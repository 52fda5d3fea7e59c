"""No true edge is missing: what a run's products read is compared with the graph of the program.

What is followed is memory: a product's result, its views, and arrays computed from it.
"""

from typing import Any

import numpy as np
import pytest

from mixpert_py.passes.dataflow.graph import dependencies
from mixpert_py.passes.pipeline import analyze
from tests.every_check import some
from tests.mixpert_py.command import ROOT
from tests.mixpert_py.random_programs import random_program
from tests.mixpert_py.tuning import recorded
from tests.passes.dataflow.hand_drawn import GRAPHS, labels
from tests.samples.test_samples import CASES

SEEDS = some(range(60))


def missing(source: bytes, module: str, seen: recorded.Pairs) -> recorded.Pairs:
    """Edges seen that the graph does not have."""
    return seen - dependencies(source, module).edges


def matrices() -> dict[str, Any]:
    """Values for the names that hand-drawn programs leave open: rotations, which stay finite."""
    rng = np.random.default_rng(0)
    rotations = {name: np.linalg.qr(rng.standard_normal((3, 3)))[0] for name in "abcdefghtuvwxyz"}
    return {**rotations, "np": np}


# Edges of samples that have fewer than two: products that feed none, or only themselves.
FEW = {"comet.py": 0, "knn.py": 0, "circuit.py": 1}


@pytest.mark.parametrize(("name", "arguments", "label", "bounds"), some(CASES))
def test_samples(name: str, arguments: list[str], label: str, bounds: Any) -> None:
    source = (ROOT / "samples" / name).read_bytes()
    module = name.removesuffix(".py")
    seen = recorded.run(source, module, arguments=arguments)
    assert len(seen) >= FEW.get(name, 2)
    assert not missing(source, module, seen)


def seen_in(source: bytes) -> set[str]:
    """The edges seen in a hand-drawn program, as far as it runs."""
    names = labels(source)
    try:
        seen = recorded.run(source, "m", names=matrices(), most=60)
    except (ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError):
        return set()  # drawn for its edges, not to be run
    assert not missing(source, "m", seen)
    return {f"{names[a]} -> {names[b]}" for a, b in seen}


# What the recorder itself is to see: in-place changes, views, containers, calls, loops.
SEEN = {
    "chain": "p -> q, q -> r",
    "through-arithmetic": "p -> q",
    "loop-of-two": "p -> q, q -> p",
    "overwritten": "",
    "shape-is-no-value": "",
    "tuple-swap": "p -> r",
    "dictionary-store": "p -> q",
    "list-of-lists": "p -> q",
    "zip": "p -> q",
    "out-is-no-operand": "",
    "print-changes-nothing": "",
    "functions": "p -> q",
    "each-call-by-itself": "p -> q, q -> r",
    "nonlocal": "p -> q",
    "methods": "p -> q",
    "instances": "p -> r",
    "property": "p -> q",
    "generator": "p -> q",
    "perceptron": "p -> q, q -> r",
}


def test_hand_drawn_programs() -> None:
    seen = {name: ", ".join(sorted(seen_in(text))) for name, text, _ in GRAPHS}
    assert {name: seen[name] for name in SEEN} == SEEN
    assert sum(edges.count("->") for edges in seen.values()) >= 50


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", SEEDS)
def test_programs_by_chance(seed: int) -> None:
    source = random_program(seed)
    assert not missing(source, "m", recorded.run(source, "m", most=2000))
    every = sum(site.reason is None for site in analyze(source, "m")) ** 2
    assert len(dependencies(source, "m").edges) < every / 2  # no empty promise
