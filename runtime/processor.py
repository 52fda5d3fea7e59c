"""The part of the host's processor that this process may use."""

import os


def cores() -> int:
    """The number of cores; NumPy's BLAS uses a thread for each unless the user sets another
    number.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
