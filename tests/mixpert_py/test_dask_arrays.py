"""A program of Dask arrays under `mixpert run`: one profile, whoever computed."""

import pytest

from tests.mixpert_py.command import Shell

pytest.importorskip("distributed", reason="distributed is not installed")

PROGRAM = """\
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster


def gram(x):
    return da.matmul(x, x.T)


def main():
    x = da.from_array(np.random.default_rng(0).standard_normal((40, 30)), chunks=(20, 15))
    early = gram(x)
    with LocalCluster(n_workers=1, processes=True, dashboard_address=None) as cluster:
        with Client(cluster):
            early.compute()
            gram(x - 1).compute()
            with Client(cluster):
                gram(x + 1).compute()
            first = gram(x + 2)
            second = first @ x
            print(abs(second - x @ x.T @ x).sum().compute() > 1e-9)


if __name__ == "__main__":
    main()
"""


def test_the_profile_has_site_and_line_and_each_call_once(sh: Shell) -> None:
    """Whatever clients there are."""
    sh.write({"p.py": PROGRAM})
    found = {record["expression"]: record for record in sh.profile("--scheme float32 p.py")}
    assert found.keys() == {"da.matmul(x, x.T)", "first @ x", "x @ x.T", "x @ x.T @ x"}
    for expression, record in found.items():
        assert expression in PROGRAM.splitlines()[record["line"] - 1]
        assert record["path"].endswith("p.py")
        calls = 8 * (4 if expression.startswith("da.") else 1)
        assert (record["calls"], record["reasons"]) == (calls, {"too small": calls})
