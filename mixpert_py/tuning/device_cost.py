"""What a program's products would take on a GPU that is not here: by its model."""

from dataclasses import dataclass

from mixpert_py.execution.worker import SiteResult
from mixpert_py.runtime.call import is_wide, real_products
from mixpert_py.runtime.cuda.break_even import figures
from mixpert_py.runtime.model import prediction
from mixpert_py.runtime.model.kernel_times import KernelTimes
from mixpert_py.runtime.model.known_devices import find
from mixpert_py.runtime.schemes import emulation_of


@dataclass(frozen=True, slots=True, eq=False)
class DeviceCost:
    """A `clock.Cost` in seconds on one device. device: its name as CUDA gives it."""

    device: str
    times: KernelTimes

    @classmethod
    def of(cls, name: str) -> "DeviceCost":
        """For a device by its name, or words of it. Raises DeviceError where it has no model, or
        no kernels."""
        times = KernelTimes(find(name))
        prediction.require(times)
        return cls(times.model.device, times)

    def __call__(self, site: str, trace: SiteResult, scheme: str) -> float:
        """Operands lie on the device. Where a scheme would be no faster, its products are native
        there, as `runtime.route` makes them."""
        wide = is_wide(*trace.dtypes)
        # Of a complex result both operands were complex, for all that is known.
        products = max((real_products(dtype, dtype) for dtype in trace.dtypes), default=1)
        return sum(
            calls * self._product(m, k, n, wide, products, scheme)
            for m, k, n, calls in trace.shapes
        )

    def _product(self, m: int, k: int, n: int, wide: bool, products: int, scheme: str) -> float:
        """A stack of matrices counts in m; products: how many real ones it takes."""
        if 0 in (m, k, n):
            return 0.0
        native = prediction.native(self.times, m, k, n, products, wide=wide and scheme != "float32")
        if scheme in ("native", "float32", "float64"):
            return native
        a, b = (m, k), (k, n)
        if not figures(self.device).faster(scheme, a, b, wide, 0, products):
            return native
        emulation = emulation_of(scheme)
        made = prediction.product(self.times, emulation, m, k, n, products, wide=wide).seconds
        if products == 1:
            return made
        return made + prediction.joining(self.times, m, n, products, products, wide=wide)
