"""A command server that has imported what most samples use."""

from contextlib import suppress

import numpy.linalg
import numpy.random  # noqa: F401

import mixpert_py.runtime.api  # noqa: F401
from tests.mixpert_py.command_server import serve

with suppress(ImportError):
    import sklearn.datasets  # noqa: F401

if __name__ == "__main__":
    serve()
