"""What this process may use of the host's processor."""

import os


def cores() -> int:
    """How many cores; NumPy's BLAS has a thread for each, unless the user says otherwise."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
