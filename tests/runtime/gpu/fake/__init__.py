"""A GPU that is not there: CuPy's names over NumPy, kernels that are the reference engine.

`FakeGpu.install` puts it where the runtime looks. Arrays of it are no NumPy arrays, do not mix with
them, and live on a numbered device; memory can be made short, kernels can be made not to compile.
"""

from tests.runtime.gpu.fake.array import Pointer, ndarray, wrapped
from tests.runtime.gpu.fake.current import on_device
from tests.runtime.gpu.fake.errors import CUDADriverError, CUDARuntimeError, OutOfMemoryError
from tests.runtime.gpu.fake.figures import pays_from
from tests.runtime.gpu.fake.gpu import FakeGpu
from tests.runtime.gpu.fake.stream import Stream

__all__ = [
    "CUDADriverError",
    "CUDARuntimeError",
    "FakeGpu",
    "OutOfMemoryError",
    "Pointer",
    "Stream",
    "ndarray",
    "on_device",
    "pays_from",
    "wrapped",
]
