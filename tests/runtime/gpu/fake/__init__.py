"""A GPU that is not there: CuPy's names over NumPy, kernels that are the reference engine.

`FakeGpu.install` puts it where the runtime looks. Arrays of it are no NumPy arrays, do not mix with
them, and live on a numbered device; memory can be made short, kernels can be made not to compile.
"""

from tests.runtime.gpu.fake.array import Pointer as Pointer
from tests.runtime.gpu.fake.array import ndarray as ndarray
from tests.runtime.gpu.fake.array import normal as normal
from tests.runtime.gpu.fake.array import wrapped as wrapped
from tests.runtime.gpu.fake.gpu import FakeGpu as FakeGpu
from tests.runtime.gpu.fake.gpu import pays_from as pays_from
from tests.runtime.gpu.fake.stream import CUDADriverError as CUDADriverError
from tests.runtime.gpu.fake.stream import CUDARuntimeError as CUDARuntimeError
from tests.runtime.gpu.fake.stream import OutOfMemoryError as OutOfMemoryError
from tests.runtime.gpu.fake.stream import Stream as Stream
from tests.runtime.gpu.fake.stream import on_device as on_device
