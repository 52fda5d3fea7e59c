"""The backends that a user can name, one record for each: all that the rest asks about them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from mixpert_py.errors import DeviceError, PlanError
from mixpert_py.runtime.gpu import device

if TYPE_CHECKING:
    from mixpert_py.runtime.model.device_model import Accumulations
    from mixpert_py.runtime.reasons import Reason
    from mixpert_py.runtime.request import Product, Request


@cache
def accumulations(backend: str | None) -> "Accumulations | None":
    """How the device that "reference:DEVICE" names accumulates products; None without a device.

    Raises DeviceError if the device has no model, or its model does not describe accumulation.
    """
    device_name = (backend or "").partition(":")[2]
    if not device_name:
        return None
    from mixpert_py.runtime.model.device_model import Accumulations, find

    found = find(device_name).accumulation
    if found == Accumulations():
        raise DeviceError(f"backend {backend!r}: its device model says nothing of accumulation")
    return found


def _require_gpu(name: str) -> None:
    found = device.find()
    if isinstance(found, device.Absent):
        raise DeviceError(f"backend {name!r}: {found.sentence}; use 'reference'")


@dataclass(frozen=True, slots=True, eq=False)
class Backend:
    """A backend. module: has the function `multiply` from a `Request` for NumPy arrays to a
    `Product`, or a `Reason`. require: raises DeviceError if this machine lacks the backend of a
    name. is_on_gpu: products of all sizes are made on a GPU; else NumPy emulates products of all
    arrays. devices: whether the name may be followed by ":DEVICE". words: what it does, for helps.
    """

    name: str
    words: str
    module: str
    require: Callable[[str], object]
    is_on_gpu: bool = False
    devices: bool = False


REFERENCE = Backend(
    "reference",
    "emulate tensor cores in NumPy (reference:h200: add up as that GPU does)",
    "mixpert_py.runtime.reference.emulation",
    accumulations,
    devices=True,
)
CUDA = Backend(
    "cuda",
    "make products of all sizes on the GPU",
    "mixpert_py.runtime.gpu.transfer",
    _require_gpu,
    is_on_gpu=True,
)
BACKENDS = {backend.name: backend for backend in (REFERENCE, CUDA)}
HELP = "; ".join(f"{backend.name}: {backend.words}" for backend in BACKENDS.values())


@cache
def backend_of(name: str | None) -> Backend | None:
    """The backend of a name, with or without a device; None where there is none."""
    head, _, device_name = (name or "").partition(":")
    found = BACKENDS.get(head)
    return None if found is None or (device_name and not found.devices) else found


@cache
def product_of(backend: Backend) -> "Callable[[Request], Product | Reason]":
    """The function that makes a backend's products, imported when a product needs it."""
    function: Callable[[Request], Product | Reason] = import_module(backend.module).multiply
    return function


def require_backend(name: str | None) -> None:
    """Raise PlanError for an unknown backend, DeviceError for one that this machine lacks."""
    backend = backend_of(name)
    if backend is not None and name is not None:
        backend.require(name)
    elif name is not None:
        known = (*BACKENDS, *(f"{it.name}:DEVICE" for it in BACKENDS.values() if it.devices))
        raise PlanError(f"unknown backend {name!r}; known: {', '.join(known)}")


@cache
def emulates(name: str | None) -> bool:
    """Whether the products of a backend are emulated on the host."""
    backend = backend_of(name)
    return backend is not None and not backend.is_on_gpu


@cache
def is_on_gpu(name: str | None) -> bool:
    """Whether the products of a backend are made on a GPU, whatever their size."""
    backend = backend_of(name)
    return backend is not None and backend.is_on_gpu


def of_this_machine() -> Backend:
    """A backend for products of all sizes: on a GPU if this machine has one."""
    return REFERENCE if isinstance(device.find(), device.Absent) else CUDA
