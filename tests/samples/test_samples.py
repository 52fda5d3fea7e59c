"""The samples are ordinary programs, on a GPU too; and parts of those of the papers."""

import ast
import os
import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mixpert_py.errors import DeviceError
from mixpert_py.passes.pipeline import analyze, rewrite
from mixpert_py.runtime.model.device_model import find
from samples.papers import search as searches
from samples.papers.fragments import deduced
from samples.papers.legemm_tiles import Tiling, chosen, enough
from tests.mixpert_py import forked_runs
from tests.mixpert_py.command import child_environment
from tests.mixpert_py.fork_server import AVAILABLE, Request, Server

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
        code, out, err = request.ask(_server())
    else:
        environment["PYTHONPATH"] = os.pathsep.join((str(importable), environment["PYTHONPATH"]))
        command = [sys.executable, *STRICT, program, *arguments]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        code, out, err = run.returncode, run.stdout, run.stderr
    assert (code, err) == (0, "")
    return out


@cache
def _server() -> Server:
    command = [sys.executable, *STRICT, "-m", "tests.samples.sample_server"]
    return Server(command, child_environment())


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


Places = NDArray[np.int64]

SHAPES = {"float16": (16, 8, 16), "int8": (16, 8, 32)}


def places(element: str) -> dict[str, Places]:
    """(lanes, elements of a thread): row · columns + column, of A, B and C."""
    _, n, k = SHAPES[element]
    parts = k // 8  # of a register
    lane = np.arange(32)[:, None]
    group, thread = lane // 4, lane % 4
    a, b, c = np.arange(4 * parts), np.arange(2 * parts), np.arange(4)
    found = {
        "A": (
            group + 8 * (a // parts % 2),
            thread * parts + a % parts + k // 2 * (a // parts // 2),
            k,
        ),
        "B": (thread * parts + b % parts + k // 2 * (b // parts), group, n),
        "C": (group + 8 * (c // 2), thread * 2 + c % 2, n),
    }
    return {
        name: row * columns + (column + 0 * row) for name, (row, column, columns) in found.items()
    }


def products(a: Places, b: Places, c: Places, shape: tuple[int, int, int]) -> NDArray[np.int32]:
    """What `products` of fragments.cu writes where the fragments lie so."""
    m, n, k = shape
    found = np.zeros((2, m * k, m * n), np.int32)
    of_b = {int(place): number for number, place in enumerate(b.ravel())}
    of_c = {int(place): number for number, place in enumerate(c.ravel())}
    for number, place in enumerate(a.ravel()):
        row, depth = divmod(int(place), k)
        for column in range(n):
            met = of_b[depth * n + column]
            found[:, number, of_c[row * n + column]] = met % 16 + 1, met // 16 + 1
    return found


@pytest.mark.parametrize("element", SHAPES)
def test_the_documented_map_is_found(element: str) -> None:
    known = places(element)
    seen = products(known["A"], known["B"], known["C"], SHAPES[element])
    for part in deduced(seen, SHAPES[element]):
        np.testing.assert_array_equal(part.places, known[part.operand])


def test_what_no_map_explains_is_refused() -> None:
    known = places("float16")
    seen = products(known["A"], known["B"], known["C"], SHAPES["float16"])
    stray = seen.copy()
    stray[:, 0, 127] = 16
    for broken in (
        stray,
        0 * seen,
        seen[:, :, :64].repeat(2, axis=2),
        seen[:, :128].repeat(2, axis=1),
    ):
        with pytest.raises(DeviceError, match="no fragment map explains"):
            deduced(broken, SHAPES["float16"])


A800 = find("NVIDIA A100-SXM4-80GB")
TILES = [Tiling(m, n, 256) for m, n in ((128, 128), (128, 64), (64, 64))]

# Li et al., PPoPP 2019: 256 threads, and 65,536 are enough (tiling/gemm.cu of their code).
SIDES = ((128, 128), (64, 128), (128, 64), (64, 64), (32, 32), (16, 16))
LI = [Tiling(m, n, 256) for m, n in SIDES]
# BatchGEMM of LE-GEMM's first author: 6,000 wavefronts of 64 are enough (CUDA/framework/run.sh).
ZHANG = [Tiling(64, 64, 256), Tiling(32, 64, 256), Tiling(32, 32, 128), Tiling(16, 32, 128)]
ZHANG.append(Tiling(16, 16, 128))
ENOUGH_FOR_ZHANG = 6_000 * 64 + 1  # their loop goes on at 6,000 itself


@pytest.mark.parametrize(
    ("tiles", "needed", "m", "n", "batch", "tile"),
    [
        *((LI, 65_536, n, n, b, t) for n, b, t in ((128, 4, (16, 16)), (128, 16, (32, 32)))),
        *((LI, 65_536, n, n, b, t) for n, b, t in ((512, 8, (64, 128)), (1024, 64, (128, 128)))),
        *((LI, 65_536, n, n, b, t) for n, b, t in ((128, 64, (64, 64)), (64, 1, (16, 16)))),
        # 512 × 512 products, their benchmark: a batch of 24 fills the chip with the largest tile.
        *((ZHANG, ENOUGH_FOR_ZHANG, 512, 512, b, t) for b, t in ((8, (16, 32)), (16, (32, 64)))),
        *((ZHANG, ENOUGH_FOR_ZHANG, 512, 512, b, t) for b, t in ((32, (64, 64)), (1, (16, 16)))),
        # On an A800: 20, or 13, tiles in a second wave.
        (TILES, 0, 1024, 1024, 1, (128, 64)),
        (TILES, 0, 1408, 1408, 1, (128, 128)),
        (TILES, 0, 8192, 256, 1, (128, 128)),
        (TILES, 0, 192, 192, 16, (64, 64)),
    ],
)
def test_the_largest_tile_with_threads_enough(
    tiles: list[Tiling], needed: int, m: int, n: int, batch: int, tile: tuple[int, int]
) -> None:
    least = [needed or enough(A800, one) for one in tiles]
    assert chosen(tiles, least, m, n, batch)[:2] == tile


SWITCHED = Path(__file__).with_name("strict")  # in which `cupy` is NumPy that mixes nothing
WITHOUT = {"diffusion.py", "knn_digits.py"}


@pytest.mark.parametrize(
    ("name", "arguments", "label", "bounds"),
    [case for case in CASES if case.values[0] not in WITHOUT],
)
def test_the_figure_is_sensible_there_too(
    name: str, arguments: list[str], label: str, bounds: tuple[float, float]
) -> None:
    low, high = bounds
    assert low <= figure(printed(name, *arguments, "--gpu", importable=SWITCHED), label) <= high


def test_the_others_have_no_such_switch() -> None:
    switched = {path.name for path in SAMPLES.glob("*.py") if "--gpu" in path.read_text("utf-8")}
    assert switched == {path.name for path in SAMPLES.glob("*.py")} - WITHOUT


PROGRAM = """\
import sys
import numpy as np
rng = np.random.default_rng(int(sys.argv[-1]))
a = rng.standard_normal((40, 40))
b = a @ a
c = np.dot(b, a)
"""


def test_every_search_where_every_plan_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked_runs.use(monkeypatch)
    monkeypatch.chdir(tmp_path)  # a tuning's first run copies the folder that it works in
    (tmp_path / "cholesky.py").write_text(PROGRAM)
    reported: list[dict[str, Any]] = []
    found = searches.measure(tmp_path, {"cholesky": ("1",)}, (1e-5,), reported.append)
    assert found["rows"] == reported
    rows = {row["search"]: row for row in reported}
    assert list(rows) == ["predictive", "greedy", "exhaustive", "random"]
    assert rows["exhaustive"]["runs"] == 5**2
    for row in reported:
        assert row["levels"] == len(searches.LEVELS)
        assert row["error"] <= 1e-5
        assert 0 <= row["gain"] <= rows["exhaustive"]["gain"]
        assert row["runs"] <= 5**2
