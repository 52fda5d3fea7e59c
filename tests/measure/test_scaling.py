"""Weak scaling, and the cluster of one process a GPU, on processes without one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixpert_py.bench import readme
from mixpert_py.errors import DeviceError
from mixpert_py.execution import gpus
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.tracing.trace import Trace
from tests.measure import scaling
from tests.mixpert_py.command import called

pytest.importorskip("distributed", reason="distributed is not installed")


def seen() -> str | None:
    import os

    return os.environ.get("CUDA_VISIBLE_DEVICES")


def limit(dask_worker: Any) -> Any:
    return dask_worker.memory_manager.memory_limit


def test_each_worker_sees_one_gpu_and_makes_its_own_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import Client, wait

    monkeypatch.setattr(scaling, "BLOCKS", 2)
    clusters: list[Any] = []
    start = gpus.start_cluster

    def started(names: Any, **given: Any) -> Any:
        clusters.append(start(names, **given))
        return clusters[-1]

    messages: list[str] = []
    placed: list[dict[str, Any]] = []

    def waited(*futures: Any) -> Any:
        done = wait(*futures)
        client = Client.current()
        assert sorted(client.run(seen).values()) == ["GPU-5", "GPU-7"]
        assert list(client.run(limit).values()) == [None, None]  # nothing goes to disk
        placed.append({key: tuple(where) for key, where in client.who_has(futures[0]).items()})
        return done

    monkeypatch.setattr(gpus, "start_cluster", started)
    monkeypatch.setattr("distributed.wait", waited)
    trace = Trace()
    with use(Context(trace=trace)):
        found = scaling.measure(
            ("GPU-7", "GPU-5"), (2,), 96, 2, backend="reference", report=messages.append
        )
    (row,) = found["rows"]
    assert messages == ["2 × 2 products of 96³ …", ", ".join(scaling._cells(row))]
    assert (row["gpus"], row["efficiency"], row["seconds"]["runs"]) == (2, 1.0, 2)
    assert trace.sites["-"].schemes == {"int8x6": 3 * 4}
    assert trace.sites["-"].shapes == {(96, 96, 96): 12}
    assert len(placed) == 7  # operands; and of each round, rows and products
    for where in placed[1::2]:  # rows; such small products go to whichever worker is idle
        workers = list(where.values())
        assert sorted(workers.count(each) for each in set(workers)) == [2, 2]
    assert [len(where) for where in placed[2::2]] == [4, 4, 4]


def test_the_table_of_a_result() -> None:
    seconds = {"median": 2.0, "lower": 1.9, "upper": 2.1, "runs": 7}
    rows = [
        {"gpus": 1, "seconds": seconds, "tflops": 200.0, "efficiency": 1.0},
        {"gpus": 2, "seconds": seconds, "tflops": 320.4, "efficiency": 0.8},
    ]
    found = {"scheme": "int8x6", "blocks": 4, "size": 64, "wanted": 0.85, "met": False}
    where = {"device": "NVIDIA X", "cores": 3, "cpu": "Y", "date": "2000-01-01"}
    table = scaling.table({**found, "rows": rows, "machine": where})
    assert table["rows"] == [
        ["1", "2.000 s", "200", "1.00", ""],
        ["2", "2.000 s", "320", "0.80", "≥ 0.85: missed"],
    ]
    assert "products of 64³" in table["text"]
    assert "NVIDIA X, 3 cores of Y" in table["text"]


def test_the_kept_table_is_that_of_the_kept_rows() -> None:
    kept = readme.saved("scaling")
    assert kept is not None
    assert kept["table"] == scaling.table(kept)


def test_too_few_gpus() -> None:
    with pytest.raises(DeviceError, match="4 GPUs are required, and there are 2"):
        scaling.measure(("0", "1"), (1, 4), 96, 1, report=print)


def test_a_machine_without_a_gpu(tmp_path: Path) -> None:
    if gpus.names(None):
        pytest.skip("there is a GPU here")
    for command in (("mixpert_py", "cluster"), ("tests.measure.scaling",)):
        done = called(*command, folder=tmp_path)
        assert (done.code, done.out) == (2, "")
        assert "GPU" in done.one_clear_line()


@pytest.mark.gpu
def test_every_gpu_has_a_worker_that_multiplies_on_it() -> None:
    import dask.array as da
    from distributed import Client

    from mixpert_py.runtime.api import matmul

    names = gpus.names("cuda")
    if len(names) < 2:
        pytest.skip(f"needs two GPUs, and there is {len(names)}")
    x = np.random.default_rng(0).standard_normal((2048, 1024)).astype("f")
    trace = Trace()
    with gpus.start_cluster(names) as cluster, Client(cluster) as client:
        assert sorted(client.run(seen).values()) == sorted(names)
        a = da.from_array(x, chunks=(256, 1024))
        with use(Context(scheme="int8x6", backend="cuda", trace=trace)):
            made = matmul(a, a.T, site="s").compute()
    np.testing.assert_allclose(made, x @ x.T, atol=1e-2)
    assert trace.sites["s"].schemes == {"int8x6": 64}
