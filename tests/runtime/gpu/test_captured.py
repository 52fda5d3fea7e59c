"""Functions under `accelerate(graph=True)`: what is captured, and what is made as ever."""

import threading
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest

import mixpert_py
from mixpert_py.runtime.gpu.captured import (
    NotCapturedError,
    _result_with_arrays,
    _shape,
    captured,
)

WEIGHT: Any = None
calls: list[str] = []


@mixpert_py.accelerate(graph=True)
def layer(x: Any, w: Any, *, scale: float = 1.0, name: str = "layer") -> Any:
    calls.append(name)
    return (x @ w) * scale


class Pair(NamedTuple):
    first: Any
    second: Any


def test_operands_that_are_on_no_gpu_are_multiplied_as_ever() -> None:
    x = np.arange(6.0).reshape(2, 3)
    calls.clear()
    for _ in range(3):
        np.testing.assert_array_equal(layer(x, x.T, scale=2.0), 2 * (x @ x.T))
    assert len(calls) == 3
    assert layer.__name__ == "layer"


def test_what_a_signature_tells_apart() -> None:
    one, same = object(), object()
    keys = [1, 1.0, True, "1", 0.0, -0.0, None, (1,), [1], {"a": 1}, one, same]
    assert len({_shape(key, []) for key in keys}) == len(keys)
    assert _shape({"a": [1, one]}, []) == _shape({"a": [1, one]}, [])


def test_results_of_other_types_are_no_graphs() -> None:
    assert _result_with_arrays([1, (2.0, None), {"a": Pair("b", 3)}], id) == [
        1,
        (2.0, None),
        {"a": Pair("b", 3)},
    ]
    for value in (np.ones(2), {1}, object()):
        with pytest.raises(NotCapturedError, match=r"it returns a (ndarray|set|object)"):
            _result_with_arrays([value], id)


@pytest.mark.gpu
@pytest.mark.parametrize("library", ["cupy", "torch"])
class TestOnGpu:
    def random(self, library: str, *shape: int, seed: int = 0) -> Any:
        x = np.random.default_rng(seed).standard_normal(shape).astype("f")
        if library == "cupy":
            import cupy

            return cupy.asarray(x)
        torch: Any = pytest.importorskip("torch")
        return torch.as_tensor(x, device="cuda")

    def host(self, x: Any) -> Any:
        return x.get() if hasattr(x, "get") else x.cpu().numpy()

    @pytest.mark.parametrize("n", [1024, 2048])
    def test_the_bits_of_each_call(self, library: str, n: int) -> None:
        calls.clear()
        w = self.random(library, n, n, seed=1)
        results = []
        for seed in range(6):
            x = self.random(library, n, n, seed=seed)
            wanted = self.host(mixpert_py.matmul(x, w, site="s") * 0.5)
            results.append((layer(x, w, scale=0.5, name=f"{library} {n}"), wanted))
        assert 2 <= len(calls) <= 3  # once more, where operands no longer lie where they lay
        for found, wanted in results:  # later calls have not changed what earlier ones returned
            np.testing.assert_array_equal(self.host(found), wanted)

    def test_memory_that_is_taken_between_calls(self, library: str) -> None:
        @captured
        def chain(x: Any) -> Any:
            y = mixpert_py.matmul(x, x, site="s")
            z = y * 2
            return {"z": mixpert_py.matmul(z, x, site="t"), "n": 3}, (y,)

        x = self.random(library, 1024, 1024)
        first, (second,) = chain(x)
        assert first["n"] == 3
        taken = []
        for step in range(6):
            found, (y,) = chain(x)
            taken += [self.random(library, 1024, 1024, seed=step) for _ in range(3)]
            np.testing.assert_array_equal(self.host(found["z"]), self.host(first["z"]))
            np.testing.assert_array_equal(self.host(y), self.host(second))

    def test_arrays_besides_are_read_where_they_are(self, library: str) -> None:
        weight = self.random(library, 1024, 1024, seed=3)
        function = captured(lambda x: mixpert_py.matmul(x, weight, site="s"))
        for seed, factor in enumerate((1, 1, 1, 2, 2)):
            x = self.random(library, 1024, 1024, seed=seed)
            weight *= factor
            np.testing.assert_array_equal(
                self.host(function(x)), self.host(mixpert_py.matmul(x, weight, site="s"))
            )

    def test_operands_that_move(self, library: str) -> None:
        """Read where they are as long as they stay there; one array in two places."""
        calls.clear()

        @captured
        def both(x: Any, y: Any) -> Any:
            calls.append("")
            return mixpert_py.matmul(x, y, site="s")

        fixed = self.random(library, 1024, 1024)
        others = [self.random(library, 1024, 1024, seed=seed) for seed in range(1, 5)]
        for x, y in [
            *((fixed, y) for y in others),
            *((x, fixed) for x in others),
            *((x, x) for x in others),
        ]:
            np.testing.assert_array_equal(
                self.host(both(x, y)), self.host(mixpert_py.matmul(x, y, site="s"))
            )
        for x in (fixed, *others):
            np.testing.assert_array_equal(
                self.host(both(x, x)), self.host(mixpert_py.matmul(x, x, site="s"))
            )
        assert len(calls) < 8

    def test_precision_has_graphs_of_its_own(self, library: str) -> None:
        x = self.random(library, 2048, 2048)
        w = self.random(library, 2048, 2048, seed=1)
        function = captured(lambda x, w: mixpert_py.matmul(x, w, site="s"))
        for _ in range(3):
            fine = self.host(function(x, w))
            with mixpert_py.precision("int8x1"):
                coarse = self.host(function(x, w))
                wanted = self.host(mixpert_py.matmul(x, w, site="s"))
            np.testing.assert_array_equal(coarse, wanted)
            assert (coarse != fine).any()

    def test_what_reads_elements_is_made_as_ever(self, library: str) -> None:
        function = captured(lambda x: x * float(x.sum()))
        x = self.random(library, 64, 64)
        function(x)
        with pytest.warns(UserWarning, match="is not captured into a CUDA graph"):
            function(x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = function(x)
        np.testing.assert_array_equal(self.host(found), self.host(x * float(x.sum())))

    def test_what_changes_its_argument_is_made_as_ever(self, library: str) -> None:
        def change(x: Any) -> Any:
            x += 1
            return x * 2

        function = captured(change)
        first, x = (self.random(library, 64, 64, seed=seed) for seed in range(2))
        start = self.host(x).copy()
        function(first)
        with pytest.warns(UserWarning, match="it changes an argument"):
            second = function(x)
        np.testing.assert_array_equal(self.host(x), start + 1)
        np.testing.assert_array_equal(self.host(second), (start + 1) * 2)
        function(x)
        np.testing.assert_array_equal(self.host(x), start + 1 + 1)

    def test_an_argument_that_stays_may_be_changed(self, library: str) -> None:
        def change(x: Any) -> Any:
            x += 1
            return x * 2

        function = captured(change)
        x = self.random(library, 64, 64)
        wanted = self.host(x).copy()
        for _ in range(4):
            found = function(x)
            wanted += 1
            np.testing.assert_array_equal(self.host(x), wanted)
            np.testing.assert_array_equal(self.host(found), wanted * 2)

    def test_threads_and_streams(self, library: str) -> None:
        function = captured(lambda x: mixpert_py.matmul(x, x, site="s") + 1)
        inputs = [self.random(library, 1024, 1024, seed=seed) for seed in range(4)]
        wanted = [self.host(mixpert_py.matmul(x, x, site="s") + 1) for x in inputs]
        for x in inputs[:3]:
            function(x)
        failed: list[int] = []

        def work(number: int) -> None:
            if library == "cupy":
                import cupy

                stream: Any = cupy.cuda.Stream(non_blocking=True)
            else:
                import torch

                stream = torch.cuda.stream(torch.cuda.Stream())
            with stream:
                for _ in range(30):
                    if (self.host(function(inputs[number])) != wanted[number]).any():
                        failed.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed


@pytest.mark.gpu
def test_derivatives_are_pytorchs() -> None:
    torch: Any = pytest.importorskip("torch")
    w = torch.randn(64, 64, device="cuda", requires_grad=True)
    x = torch.randn(64, 64, device="cuda")
    given = captured(lambda x, w: x @ w)
    beside = captured(lambda x: x @ w)
    for _ in range(3):
        assert given(x, w).requires_grad
    beside(x)
    with pytest.warns(UserWarning, match="its result has a derivative"):
        assert beside(x).requires_grad
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(given(x, w), x @ w)


@pytest.mark.gpu
def test_native_products_of_cupy_cannot_be_captured() -> None:
    """CuPy refuses to call cuBLAS then."""
    import cupy

    x = cupy.random.default_rng(0).standard_normal((64, 64), dtype="float32")
    function = captured(lambda x: x @ x)
    function(x)
    with pytest.warns(UserWarning, match="cuBLAS"):
        found = function(x)
    assert (found == x @ x).all()
