"""Functions whose work on a GPU is captured into CUDA graphs.

A function of small and middling products spends its time on the host, in Python and in launches.
Where its arrays keep their shapes, the first call is made as ever and the second is captured; later
ones copy the operands to where the graph reads them, launch the graph, and copy its results. What
that requires of a function, `accelerate` says.
"""

import functools
import sys
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

from mixpert_py.runtime.context import current
from mixpert_py.runtime.gpu.foreign import Library

MOST: Final = 8  # signatures of a function that are captured; calls of others are made as ever
PLAIN: Final = (bool, int, float, complex, str, bytes, type(None))

Function = Callable[..., Any]


class NotCapturedError(Exception):
    """Why a call cannot be a graph: the end of a sentence."""


class _Same:
    """An object as a key that is equal to nothing but itself, and that keeps it alive."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


class _Signature(NamedTuple):
    """What a graph is for: the library and device of its arrays, the arguments but for the arrays'
    elements, and what decides on the schemes of products.
    """

    library: Library
    device: int
    arguments: Any
    in_force: tuple[Any, ...]


def captured(function: Function) -> Function:
    """The function; its calls with CuPy's or PyTorch's arrays are graphs from the second on."""
    lock = threading.Lock()  # the arrays of a graph are shared by its launches
    # False where calls of a signature cannot be captured, None until the second one.
    graphs: dict[_Signature, _Graph | bool | None] = {}

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        arrays: list[Any] = []
        signature = _signature((args, options), arrays)
        if signature is None:
            return function(*args, **options)
        with lock:
            graph = graphs.get(signature, False)
            if isinstance(graph, _Graph):
                return graph.launch(arrays)
            if graph is None:
                graphs[signature] = False
                try:
                    graph = _GRAPHS[signature.library](function, args, options, arrays)
                    result = graph.launch(arrays)
                    if not graph.returns_changes(arrays):
                        graphs[signature] = graph
                        return result
                    reason = NotCapturedError("it changes an argument")
                except NotCapturedError as error:
                    reason, result = error, _NOTHING
                name = getattr(function, "__qualname__", repr(function))
                warnings.warn(
                    f"accelerate: {name} is not captured into a CUDA graph: {reason}", stacklevel=2
                )
                if result is not _NOTHING:
                    return result
            elif len(graphs) < MOST:
                graphs.setdefault(signature, None)
        return function(*args, **options)

    return call


_NOTHING: Final = object()


class _Graph(ABC):
    """A captured call: arrays that it reads, and those of its result, in memory of its own."""

    def __init__(self, function: Function, args: Any, options: Any, arrays: list[Any]) -> None:
        """Capture a call. Raises NotCapturedError."""
        self._inputs: list[Any] = []
        try:
            with self._capturing(arrays):
                places = {id(x): place for x, place in zip(arrays, self._inputs, strict=True)}
                args, options = _with_arrays((args, options), lambda x: places[id(x)])
                self._result = function(*args, **options)
        except NotCapturedError:
            raise
        except Exception as error:
            line = f"{type(error).__name__}: {error}".splitlines()[0]
            raise NotCapturedError(line) from error
        _result_with_arrays(self._result, lambda x: x)  # raises for what cannot be returned anew

    def launch(self, arrays: list[Any]) -> Any:
        """The result of a call with these arrays, as new arrays, on the caller's stream."""
        with self._in_turn():
            for place, x in zip(self._inputs, arrays, strict=True):
                self._write(place, x)
            self._replay()
            return _result_with_arrays(self._result, self._copy)

    def returns_changes(self, arrays: list[Any]) -> bool:
        """Whether the launch before has changed what it read; then the caller's arrays are, too."""
        changed = False
        for place, x in zip(self._inputs, arrays, strict=True):
            if not self._are_equal(place, x):
                self._write(x, place)
                changed = True
        return changed

    @abstractmethod
    def _capturing(self, arrays: list[Any]) -> Any:
        """A context that captures what is enqueued in it; before, `_inputs` become copies."""

    @abstractmethod
    def _in_turn(self) -> Any:
        """A context whose work on the current stream comes after that of the one before."""

    @abstractmethod
    def _replay(self) -> None: ...

    @abstractmethod
    def _write(self, place: Any, x: Any) -> None: ...

    @abstractmethod
    def _copy(self, x: Any) -> Any: ...

    @abstractmethod
    def _are_equal(self, one: Any, other: Any) -> bool:
        """Whether two arrays have the same elements, NaN being equal to NaN."""


class _CupyGraph(_Graph):
    @contextmanager
    def _capturing(self, arrays: list[Any]) -> Iterator[None]:
        import cupy

        caller = cupy.cuda.get_current_stream()
        stream = cupy.cuda.Stream(non_blocking=True)
        stream.wait_event(caller.record())
        # Nothing else may take memory that is free between two steps of the graph.
        self._pool = cupy.cuda.MemoryPool()
        with cupy.cuda.using_allocator(self._pool.malloc), stream:
            self._inputs = [x.copy() for x in arrays]
            stream.synchronize()
            stream.begin_capture()
            try:
                yield
            except BaseException:
                with suppress(
                    cupy.cuda.runtime.CUDARuntimeError
                ):  # what is invalid, is being raised
                    stream.end_capture()
                raise
            self._graph = stream.end_capture()
        self._done = cupy.cuda.Event(disable_timing=True)

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        import cupy

        stream = cupy.cuda.get_current_stream()
        stream.wait_event(self._done)
        yield
        self._done.record(stream)

    def _replay(self) -> None:
        import cupy

        self._graph.launch(cupy.cuda.get_current_stream())

    def _write(self, place: Any, x: Any) -> None:
        place[...] = x

    def _copy(self, x: Any) -> Any:
        return x.copy()

    def _are_equal(self, one: Any, other: Any) -> bool:
        return bool(((one == other) | ((one != one) & (other != other))).all())


class _TorchGraph(_Graph):
    @contextmanager
    def _capturing(self, arrays: list[Any]) -> Iterator[None]:
        import cupy

        torch = sys.modules["torch"]
        self._inputs = [x.detach().clone() for x in arrays]
        self._graph = torch.cuda.CUDAGraph()
        self._pool = cupy.cuda.MemoryPool()  # of what products take besides PyTorch's own memory
        mode = {"capture_error_mode": "relaxed"}  # CuPy's pool may ask the driver for memory
        with cupy.cuda.using_allocator(self._pool.malloc), torch.cuda.graph(self._graph, **mode):
            yield
        self._done = torch.cuda.Event()

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        stream = sys.modules["torch"].cuda.current_stream()
        stream.wait_event(self._done)
        yield
        self._done.record(stream)

    def _replay(self) -> None:
        self._graph.replay()

    def _write(self, place: Any, x: Any) -> None:
        place.detach().copy_(x.detach())

    def _copy(self, x: Any) -> Any:
        return x.clone()

    def _are_equal(self, one: Any, other: Any) -> bool:
        return bool(((one == other) | ((one != one) & (other != other))).all())


_GRAPHS: Final[Mapping[Library, type[_Graph]]] = {"cupy": _CupyGraph, "torch": _TorchGraph}


def _signature(arguments: Any, arrays: list[Any]) -> _Signature | None:
    """The signature of a call; None where it is to be made as ever. arrays: takes its arrays."""
    context = current()
    if context.trace is not None or context.devices is not None:
        return None
    shape = _shape(arguments, arrays)
    libraries = {_library(x) for x in arrays}
    if len(libraries) != 1:
        return None
    (library,) = libraries
    assert library is not None
    cuda = sys.modules[library].cuda
    if library == "cupy":
        here, is_capturing = cuda.runtime.getDevice(), cuda.get_current_stream().is_capturing()
        devices = {x.data.device_id for x in arrays}
    else:
        here, is_capturing = cuda.current_device(), cuda.is_current_stream_capturing()
        devices = {x.get_device() for x in arrays}
        if sys.modules["torch"].is_grad_enabled() and any(x.requires_grad for x in arrays):
            return None
    if is_capturing or devices != {here}:
        return None
    in_force = (
        *(context.scheme, context.backend, context.workspace_limit),
        *(_Same(context.plan), _Same(context.find_plan)),
    )
    signature = _Signature(library, here, shape, in_force)
    try:
        hash(signature)
    except TypeError:
        return None
    return signature


def _shape(value: Any, arrays: list[Any]) -> Any:
    """A value as a key: its arrays by type, shape, dtype and strides. arrays: takes them."""
    library = _library(value)
    if library is not None:
        arrays.append(value)
        strides = value.strides if library == "cupy" else value.stride()
        return type(value), tuple(value.shape), value.dtype, tuple(strides)
    if type(value) in (tuple, list):
        return type(value), *(_shape(x, arrays) for x in value)
    if type(value) is dict:
        return dict, *((key, _shape(x, arrays)) for key, x in value.items())
    # 1, 1.0 and True differ, and 0.0 and -0.0. Objects that are equal may hold other arrays.
    return type(value), repr(value) if type(value) in PLAIN else _Same(value)


def _library(value: Any) -> Library | None:
    """The library of a plain array on a GPU; None for anything else."""
    kind = type(value)
    cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
    if cupy is not None and kind is cupy.ndarray:
        return "cupy"
    if torch is not None and kind in (torch.Tensor, torch.nn.Parameter) and value.is_cuda:
        return "torch"
    return None


def _with_arrays(value: Any, replace: Function) -> Any:
    """Arguments with other arrays in the places of theirs."""
    if _library(value) is not None:
        return replace(value)
    if type(value) in (tuple, list):
        return type(value)(_with_arrays(x, replace) for x in value)
    if type(value) is dict:
        return {key: _with_arrays(x, replace) for key, x in value.items()}
    return value


def _result_with_arrays(value: Any, replace: Function) -> Any:
    """A result with other arrays in the places of its own.

    Raises NotCapturedError where it is more than arrays, numbers and text in containers, or has a
    derivative.
    """
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_result_with_arrays(x, replace) for x in value))
    if type(value) in (tuple, list):
        return type(value)(_result_with_arrays(x, replace) for x in value)
    if type(value) is dict:
        return {key: _result_with_arrays(x, replace) for key, x in value.items()}
    library = _library(value)
    if library is None and type(value) not in PLAIN:
        raise NotCapturedError(f"it returns a {type(value).__qualname__}")
    if library == "torch" and value.requires_grad:
        raise NotCapturedError("its result has a derivative")
    return value if library is None else replace(value)
