"""Functions whose work on a GPU is captured into CUDA graphs.

A function of small and middling products spends its time on the host, in Python and in launches.
Where its arrays keep their shapes, the first call is made as ever and the second is captured; later
ones launch the graph and copy its results. Operands that lie where they lay in the first call, such
as weights, are read there; others are copied to where the graph reads them. What that requires of a
function, `accelerate` says.
"""

import functools
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

from mixpert_py.runtime.context import current
from mixpert_py.runtime.gpu.foreign import Library
from mixpert_py.runtime.program_frames import warn

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
    # The addresses of the first call's arrays, then a graph.
    graphs: dict[_Signature, _Graph | tuple[int, ...]] = {}
    given_up = False

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        nonlocal given_up
        arrays: list[Any] = []
        signature = None if given_up else _signature((args, options), arrays)
        if signature is None:
            return function(*args, **options)
        with lock:
            known = graphs.get(signature)
            if known is None:
                if len(graphs) < MOST:
                    graphs[signature] = _GRAPHS[signature.library].addresses(arrays)
            elif not isinstance(known, _Graph) or not known.reads(arrays):
                try:
                    graph = _GRAPHS[signature.library](function, args, options, arrays, known)
                    graphs[signature] = graph
                    result = graph.launch(arrays)
                    if not graph.returns_changes(arrays):
                        return result
                    reason = NotCapturedError("it changes an argument")
                except NotCapturedError as error:
                    reason, result = error, _NOTHING
                given_up = True
                graphs.clear()
                name = getattr(function, "__qualname__", repr(function))
                warn(f"accelerate: {name} is not captured into a CUDA graph: {reason}")
                if result is not _NOTHING:
                    return result
            else:
                return known.launch(arrays)
        return function(*args, **options)

    return call


_NOTHING: Final = object()


class _Graph(ABC):
    """A captured call: arrays that it reads, and those of its result, in memory of its own."""

    # Of each array, where it has to be; None: anywhere, it is copied.
    _addresses: tuple[int | None, ...]

    def __init__(
        self,
        function: Function,
        args: tuple[object, ...],
        options: dict[str, object],
        arrays: list[Any],
        before: "_Graph | tuple[int, ...]",
    ) -> None:
        """Capture a call. before: the addresses of an earlier call's arrays, or the graph of one,
        which other arrays are where they were in it. Raises NotCapturedError.
        """
        here = self.addresses(arrays)
        there = before._addresses if isinstance(before, _Graph) else before
        self._addresses = tuple(x if x == y else None for x, y in zip(here, there, strict=True))
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

    def reads(self, arrays: list[Any]) -> bool:
        """Whether arrays that the graph reads where they are, are there."""
        here = self.addresses(arrays)
        return all(y is None or x == y for x, y in zip(here, self._addresses, strict=True))

    def launch(self, arrays: list[Any]) -> Any:
        """The result of a call with these arrays, as new arrays, on the caller's stream."""
        with self._in_turn():
            for place, x, address in zip(self._inputs, arrays, self._addresses, strict=True):
                if address is None:
                    self._write(place, x)
            self._replay()
            return _result_with_arrays(self._result, self._copy)

    def returns_changes(self, arrays: list[Any]) -> bool:
        """Whether the last launch changed copies of arguments; then these are changed, too."""
        changed = False
        for place, x in zip(self._inputs, arrays, strict=True):
            # NaN is equal to NaN here.
            if place is not x and not ((place == x) | ((place != place) & (x != x))).all():
                self._write(x, place)
                changed = True
        return changed

    def _copies(self, arrays: list[Any]) -> list[Any]:
        """What the graph is to read: an array that is always there, or a copy."""
        pairs = zip(arrays, self._addresses, strict=True)
        return [self._copy(x) if address is None else x for x, address in pairs]

    @staticmethod
    @abstractmethod
    def addresses(arrays: list[Any]) -> tuple[int, ...]: ...

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


class _CupyGraph(_Graph):
    @staticmethod
    def addresses(arrays: list[Any]) -> tuple[int, ...]:
        return tuple(x.data.ptr for x in arrays)

    @contextmanager
    def _capturing(self, arrays: list[Any]) -> Iterator[None]:
        import cupy

        caller = cupy.cuda.get_current_stream()
        stream = cupy.cuda.Stream(non_blocking=True)
        stream.wait_event(caller.record())
        # Nothing else may take memory that is free between two steps of the graph.
        self._pool = cupy.cuda.MemoryPool()
        with cupy.cuda.using_allocator(self._pool.malloc), stream:
            self._inputs = self._copies(arrays)
            stream.synchronize()
            stream.begin_capture()
            try:
                yield
            except BaseException:
                # Where the capture is invalid, what made it so is being raised.
                with suppress(cupy.cuda.runtime.CUDARuntimeError):
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


class _TorchGraph(_Graph):
    @staticmethod
    def addresses(arrays: list[Any]) -> tuple[int, ...]:
        return tuple(x.data_ptr() for x in arrays)

    @contextmanager
    def _capturing(self, arrays: list[Any]) -> Iterator[None]:
        import cupy

        torch = sys.modules["torch"]
        self._inputs = self._copies(arrays)
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
        place.copy_(x.detach())

    def _copy(self, x: Any) -> Any:
        return x.detach().clone()


_GRAPHS: Final[Mapping[Library, type[_Graph]]] = {"cupy": _CupyGraph, "torch": _TorchGraph}


def _signature(arguments: object, arrays: list[Any]) -> _Signature | None:
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
    same = tuple(next(i for i, y in enumerate(arrays) if y is x) for x in arrays)
    signature = _Signature(library, here, (shape, same), in_force)
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


def _library(value: object) -> Library | None:
    """The library of a plain array on a GPU; None for anything else."""
    kind = type(value)
    cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
    if cupy is not None and kind is cupy.ndarray:
        return "cupy"
    if (
        torch is not None
        and kind in (torch.Tensor, torch.nn.Parameter)
        and getattr(value, "is_cuda", False)
    ):
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
