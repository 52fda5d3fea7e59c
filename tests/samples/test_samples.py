"""The samples are ordinary programs: they run by themselves, and say something sensible twice."""

import ast
import os
import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from mixpert_py.passes.pipeline import analyze, rewrite
from tests.mixpert_py.command import child_environment
from tests.mixpert_py.command_server import AVAILABLE, CommandServer, Request

SAMPLES = Path(__file__).parents[2] / "samples"

STRICT = ("-W", "error")

needs_digits = pytest.mark.skipif(
    find_spec("sklearn") is None, reason="scikit-learn, whose digits this sample reads, is missing"
)


def printed(name: str | Path, *arguments: str, importable: Path = SAMPLES.parent) -> str:
    """What a program prints in a process of its own; it must exit with 0 and warn of nothing."""
    program, environment = str(SAMPLES / name), child_environment()
    if AVAILABLE:
        request = Request(program, arguments, str(SAMPLES), environment, (str(importable),))
        code, out, err = _server().run(request)
    else:
        environment["PYTHONPATH"] = os.pathsep.join((str(importable), environment["PYTHONPATH"]))
        command = [sys.executable, *STRICT, program, *arguments]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        code, out, err = run.returncode, run.stdout, run.stderr
    assert (code, err) == (0, "")
    return out


@cache
def _server() -> CommandServer:
    return CommandServer("tests.samples.sample_server", child_environment(), *STRICT)


def figure(output: str, label: str) -> float:
    """The number at the end of the line that starts with the label."""
    found = re.search(rf"^{label}.*\s(\S+)$", output, re.MULTILINE)
    assert found, f"no line {label!r} in {output!r}"
    return float(found[1])


DIGITS = {"knn_digits.py", "diffusion.py", "kmeans_digits.py", "mlp.py"}  # read scikit-learn's
TABLE = """\
cholesky.py --size 500 --block 192 --strip 64 | relative residual | 0 1e-12
knn_digits.py --size 600 | accuracy, learnt | 0.8 1
diffusion.py --size 600 --doublings 6 | accuracy,  8 near | 0.7 1
kmeans_digits.py --size 400 --clusters 64 --iterations 4 | purity | 0.7 1
mlp.py --size 600 | accuracy | 0.7 1
kalman.py --size 40 --steps 5 --tracks 50 | miss, smoothed | 0.3 0.7
transformer.py --size 160 --length 48 --width 32 | accuracy | 0.3 1
pca.py --size 300 --components 40 | reconstruction error | 0.1 0.5
knn.py --size 600 --asked 200 --width 64 --kinds 8 | accuracy | 0.6 0.99
kmeans.py --size 600 --width 64 --clusters 16 | accuracy | 0.95 1
perceptron.py --size 48 --width 64 --classes 10 | relative error | 1e-8 1e-6
pca.py --random 500 64 --components 8 | reconstruction error | 0.1 0.9
hpl_ai.py --size 300 --block 80 | scaled residual | 0 1
gp.py --size 300 --asked 200 --channels 128 | root mean square error | 0 0.01
comet.py --size 60 --people 3000 --pairs 7 | pairs found | 1 1
batched16.py --size 300 | maximum error | 1e-7 1e-5
bert.py --size 2 --length 24 --checked 6 | largest deviation | 1e-7 1e-5
qkv.py --size 512 --tokens 48 | relative error of scores | 1e-8 2e-6
circuit.py --size 10 --fused 4 --depth 6 | relative error | 1e-8 2e-6
"""


def case(line: str) -> Any:
    """A sample, its arguments, the label of its figure, and the figure's bounds."""
    command, label, bounds = line.split(" | ")
    name, *arguments = command.split()
    digits = name in DIGITS or command.startswith("pca.py --size")
    values = name, arguments, label, tuple(map(float, bounds.split()))
    return pytest.param(*values, id=command.partition("--size")[0], marks=[needs_digits] * digits)


CASES = [case(line) for line in TABLE.splitlines()]


@pytest.mark.parametrize(("name", "arguments", "label", "bounds"), CASES)
def test_prints_a_sensible_figure_and_the_same_when_rewritten(
    tmp_path: Path, name: str, arguments: list[str], label: str, bounds: tuple[float, float]
) -> None:
    """What is not the same in each run is not the same in these two."""
    output = printed(name, *arguments)
    low, high = bounds
    assert low <= figure(output, label) <= high
    module = name.removesuffix(".py")
    rewritten = tmp_path / name
    rewritten.write_bytes(rewrite((SAMPLES / name).read_bytes(), module))
    assert "_mixpert" in rewritten.read_text("utf-8")
    assert printed(rewritten, *arguments) == output


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*.py")), ids=lambda sample: sample.stem)
def test_every_product_is_found_and_rewritten(sample: Path) -> None:
    source = sample.read_bytes()
    listed = ("vdot", "cov")  # which are left native
    sites = [site for site in analyze(source, sample.stem) if site.kind not in listed]
    assert len(sites) == sum(map(is_product, ast.walk(ast.parse(source))))
    assert [site.expression for site in sites if site.reason] == []


def is_product(node: ast.AST) -> bool:
    """Whether a piece of a sample is a product, by its spelling alone."""
    match node:
        case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()):
            return True
        case ast.Call(func=ast.Attribute(attr="matmul" | "dot" | "einsum" | "tensordot")):
            return True
    return False


@needs_digits
def test_the_learnt_metric_beats_the_euclidean_one() -> None:
    output = printed("knn_digits.py", "--size", "600")
    assert figure(output, "accuracy, learnt") > figure(output, "accuracy, Euclidean") + 0.1


@needs_digits
def test_walks_say_more_of_few_labels_than_distances() -> None:
    output = printed("diffusion.py", "--size", "900")
    for near in (" 5", " 8", "12"):
        walked = figure(output, f"accuracy, {near} near")
        assert walked > figure(output, "accuracy, Euclidean") + 0.05


@pytest.mark.parametrize("block", ["64", "100", "1000"])
def test_cholesky_takes_blocks_that_do_not_divide_the_size(block: str) -> None:
    output = printed("cholesky.py", "--size", "250", "--block", block, "--strip", "48")
    assert figure(output, "relative residual") < 1e-12


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*.py")), ids=lambda sample: sample.stem)
def test_never_mentions_the_project(sample: Path) -> None:
    assert "mixpert" not in sample.read_text(encoding="utf-8").lower()


def test_every_sample_is_run_here() -> None:
    assert {case.values[0] for case in CASES} == {path.name for path in SAMPLES.glob("*.py")}
