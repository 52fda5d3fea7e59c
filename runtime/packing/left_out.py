"""How many rows of packed operands left the slices, told to the host while the device goes on."""

from collections.abc import Callable

from mixpert_py.runtime.packing.device_packed import DevicePacked


def left_out(left: DevicePacked, right: DevicePacked) -> Callable[[], float]:
    """Begin to count, on the current stream of the current device, the flagged rows of A and
    columns of B. Returns what waits until that has been done, and no longer, and gives the larger
    of both shares.
    """
    import cupy
    import cupyx

    shares = [x.view("flags").astype(bool).mean(dtype="float32") for x in (left, right)]
    here = cupyx.empty_pinned(2, "float32")
    stream = cupy.cuda.get_current_stream()
    cupy.stack(shares).get(stream=stream, out=here, blocking=False)
    event = cupy.cuda.Event(disable_timing=True)
    event.record(stream)

    def told() -> float:
        event.synchronize()
        return float(here.max())

    return told
