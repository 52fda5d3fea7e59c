"""Hashes of what must not change: rewritten files, and the bits of products under every scheme.

`python -m tests.benchmarks.frozen` compares with results/frozen.json, prints each row that differs
and exits with 1 if there is one; `--save` writes the file. `--gpu` takes products on the device,
whose rows are kept apart. What left a scheme's slices is multiplied by this machine's BLAS: bits
are comparable on machines of one kind of processor.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

import mixpert_py
from mixpert_py.errors import SourceError
from mixpert_py.passes.pipeline import rewrite

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).parent / "results" / "frozen.json"
PACKAGES = {  # what is imported → what is installed
    "networkx": "networkx",
    "pint": "pint",
    "dask": "dask",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
}
CASTS = ("native", "float32", "float64")  # BLAS's own products
ON_GPU = ("faithful", "int8", "crt")
Rows = dict[str, str]


def digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def rewritten(source: bytes) -> bytes:
    """The rewritten file, or the error that leaves it as it is."""
    try:
        return rewrite(source, "m")
    except SourceError as error:
        return str(error).encode()


def corpus() -> Rows:
    """One row for each sample, for each spelling of the tests' tables, and for each package."""
    rows = {}
    for path in sorted((ROOT / "samples").rglob("*.py")):
        rows[str(path.relative_to(ROOT))] = digest(rewritten(path.read_bytes()))
    from tests.passes import test_spellings

    for name in ("NOOP", "REWRITES"):
        table: list[tuple[Any, ...]] = getattr(test_spellings, name)
        programs = [str(row[1]).encode() for row in sorted(table, key=str)]
        # A table that has grown is another row, which is new and does not differ.
        rows[f"spellings {name} {digest(*programs)}"] = digest(*map(rewritten, programs))
    for package, distribution in PACKAGES.items():
        found = importlib.util.find_spec(package)
        if found is None or found.origin is None:
            continue
        version = importlib.metadata.version(distribution)
        files = sorted(Path(found.origin).parent.rglob("*.py"))
        rows[f"{package} {version}"] = digest(*(rewritten(path.read_bytes()) for path in files))
    return rows


def operands() -> Iterator[tuple[str, Any, Any]]:
    """A name, and the two operands of a product."""
    rng = np.random.default_rng(54)

    def normal(*shape: int, dtype: str = "f") -> Any:
        x = rng.standard_normal(shape)
        return (x + 1j * rng.standard_normal(shape) if dtype in "FD" else x).astype(dtype)

    a, b = normal(33, 300), normal(300, 20)
    yield "normal", a, b
    yield "uniform", rng.random((33, 300), "f"), rng.random((300, 20), "f")
    yield "float64", normal(33, 200, dtype="d"), normal(200, 20, dtype="d")
    yield "mixed types", normal(16, 64), normal(64, 16, dtype="d")
    yield "complex", normal(9, 64, dtype="F"), normal(64, 9, dtype="F")
    yield "stack", normal(3, 8, 64), normal(64, 8)
    yield "vector", normal(17, 129), normal(129)
    yield "views", normal(100, 33).T[::-1], normal(200, 20)[::2]
    wide = np.logspace(-6, 6, 300, dtype="f")
    yield "wide range", a * wide, (b.T / wide).T
    yield "subnormal", a * np.float32(1e-42), b
    yield "integers", np.rint(a * 99), np.rint(b * 9)
    special = a.copy()
    special[2, 3], special[5, 7] = np.nan, np.inf
    yield "not finite", special, b


def bits(value: Any) -> str:
    """A hash of an array's type, shape and bits; NaNs are alike."""
    x = np.ascontiguousarray(value)
    x = np.where(np.isnan(x), x.dtype.type(np.nan), x)
    return digest(f"{x.dtype.str} {x.shape}".encode(), x.tobytes())


def products(on_gpu: bool) -> Rows:
    """One row for each scheme and each pair of operands."""
    rows = {}
    names = [name for name in mixpert_py.schemes() if name not in CASTS]
    put: Any = np.asarray
    get: Any = np.asarray
    if on_gpu:
        import cupy

        put, get = cupy.asarray, cupy.asnumpy
        names = [name for name in names if name.startswith(ON_GPU)]
    backend = "cuda" if on_gpu else "reference"
    for kind, a, b in operands():
        for name in names:
            value = mixpert_py.matmul(put(a), put(b), scheme=name, backend=backend)
            rows[f"{name}: {kind}"] = bits(get(value))
    return rows


@click.command()
@click.option("--save", is_flag=True, help="Write the file instead of comparing with it.")
@click.option("--gpu", is_flag=True, help="Take products on the GPU instead of NumPy's emulation.")
def main(save: bool, gpu: bool) -> None:
    """Compare rewritten files and the bits of products with what was saved."""
    saved: dict[str, Rows] = json.loads(FILE.read_text()) if FILE.exists() else {}
    now = {"gpu": products(True)} if gpu else {"files": corpus(), "reference": products(False)}
    if save:
        FILE.write_text(json.dumps(saved | now, indent=0, ensure_ascii=False) + "\n")
        return
    differing = 0
    for section, rows in now.items():
        before = saved.get(section, {})
        for name in sorted(before.keys() & rows.keys()):
            if before[name] != rows[name]:
                differing += 1
                click.echo(f"{section}: {name} differs")
        for name in sorted(before.keys() ^ rows.keys()):
            click.echo(f"{section}: {name} is {'new' if name in rows else 'not here'}")
        click.echo(f"{section}: {len(before.keys() & rows.keys())} rows compared")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
