"""A command server that has imported what most samples use."""

from contextlib import suppress
from importlib import import_module

from tests.mixpert_py.fork_server import keep_imported, serve

IMPORTS = ("mixpert_py.runtime.api", "numpy.linalg", "numpy.random", "sklearn.datasets")

if __name__ == "__main__":
    keep_imported()
    for name in IMPORTS:
        with suppress(ImportError):  # a test that needs it is skipped
            import_module(name)
    serve()
