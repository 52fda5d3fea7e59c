"""The server of these tests' runs: it has made its imports, and each run is a fork of it."""

from importlib import import_module

import numpy as np

from tests.mixpert_py.fork_server import forked, keep_imported, known_code

# What every run imports, or many.
IMPORTS = (
    "mixpert_py.runtime.api",
    "mixpert_py.runtime.reference.reference",
    "mixpert_py.runtime.tracing.operand_statistics",
    "multiprocessing.spawn",
    "numpy.random",
    "runpy",
)


def main(descriptor: str) -> None:
    """Serve until the parent is gone. descriptor: of the socket to it."""
    keep_imported()
    worker = import_module("mixpert_py.execution.worker")
    for name in IMPORTS:
        import_module(name)
    with known_code():
        job_file = forked(descriptor)
        if job_file is not None:
            np.random.seed()  # as a new process does; Python's own `random` sees to itself
            worker.main(job_file)
