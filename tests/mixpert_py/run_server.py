"""The fork server of these tests' runs: Mixpert's own, whose forks end sooner."""

from importlib import import_module

from mixpert_py.execution import process
from tests.mixpert_py.fork_end import keep_imported, known_code

# What every run imports, or many.
IMPORTS = (
    "mixpert_py.runtime.tracing.operand_statistics",
    "multiprocessing.spawn",
    "runpy",
)


def main(descriptor: str, *modules: str) -> None:
    """See `mixpert_py.execution.process.main`."""
    keep_imported()
    for name in IMPORTS:
        import_module(name)
    with known_code():
        process.main(descriptor, *modules)
