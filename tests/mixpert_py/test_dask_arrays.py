"""A program of Dask arrays under `mixpert run`: one profile, whoever computed."""

import json
from pathlib import Path

import pytest

from tests.mixpert_py.command import Mixpert

pytest.importorskip("distributed", reason="distributed is not installed")

PROGRAM = """\
import dask.array as da
import numpy as np


def gram(x):
    return da.matmul(x, x.T)


def main():
    x = da.from_array(np.random.default_rng(0).standard_normal((40, 30)), chunks=(20, 15))
    {start}
        first = gram(x)
        second = first @ x
        print(abs(second - x @ x.T @ x).sum().compute(){scheduler} > 1e-9)


if __name__ == "__main__":
    main()
"""
CLUSTER = """\
from distributed import Client, LocalCluster
    with LocalCluster(n_workers=1, processes=True, dashboard_address=None) as c, Client(c):"""


CLIENTS = """\
import dask.array as da
from distributed import Client, LocalCluster


def gram(x):
    return x @ x.T


def main():
    x = da.ones((40, 30), chunks=(20, 15))
    early = gram(x)
    with LocalCluster(n_workers=1, processes=True, dashboard_address=None) as cluster:
        with Client(cluster):
            early.compute()
            gram(x - 1).compute()
            with Client(cluster):
                gram(x + 1).compute()
            gram(x + 2).compute()


if __name__ == "__main__":
    main()
"""


def test_whatever_clients_there_are_a_call_counts_once(mixpert: Mixpert, tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(CLIENTS)
    said = mixpert("run", "--scheme", "float32", "--profile", "--json", "p.json", "p.py")
    assert said.code == 0, said.err
    (record,) = json.loads((tmp_path / "p.json").read_text())
    assert record["calls"] == 4 * 8


@pytest.mark.parametrize("kind", ["cluster"])
def test_the_profile_has_site_and_line(mixpert: Mixpert, tmp_path: Path, kind: str) -> None:
    start = CLUSTER if kind == "cluster" else "if True:"
    program = PROGRAM.replace("{start}", start).replace("{scheduler}", "")
    (tmp_path / "p.py").write_text(program)
    said = mixpert("run", "--scheme", "float32", "--profile", "--json", "p.json", "p.py")
    assert (said.code, said.out.splitlines()[0]) == (0, "False"), said.err
    records = json.loads((tmp_path / "p.json").read_text())
    lines = program.splitlines()
    found = {record["expression"]: record for record in records}
    assert found.keys() == {"da.matmul(x, x.T)", "first @ x", "x @ x.T", "x @ x.T @ x"}
    for expression, record in found.items():
        assert expression in lines[record["line"] - 1]
        assert record["path"].endswith("p.py")
        assert record["calls"] == 8
        assert record["reasons"] == {"too small": 8}
