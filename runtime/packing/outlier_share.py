"""The share of rows that left the slices, counted on the device and read while it goes on."""

from collections.abc import Callable

from mixpert_py.runtime.packing.device_packed import DevicePacked


def outlier_share(left: DevicePacked, right: DevicePacked) -> Callable[[], float]:
    """Begin to count the flagged rows of A and columns of B, on the current stream.

    left, right: packed operands on the current device. Returns a function that waits until they
    are counted, not for what is enqueued later, and returns the larger of both shares, 0 … 1.
    """
    import cupy
    import cupyx

    shares = [x.view("flags").astype(bool).mean(dtype="float32") for x in (left, right)]
    here = cupyx.empty_pinned(2, "float32")
    stream = cupy.cuda.get_current_stream()
    cupy.stack(shares).get(stream=stream, out=here, blocking=False)
    event = cupy.cuda.Event(disable_timing=True)
    event.record(stream)

    def share() -> float:
        event.synchronize()
        return float(here.max())

    return share
