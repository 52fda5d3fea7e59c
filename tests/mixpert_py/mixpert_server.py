"""A command server that has imported what most commands of `mixpert` use."""

from importlib import import_module

from mixpert_py.cli import ALONE
from tests.mixpert_py import forked_runs
from tests.mixpert_py.fork_server import keep_imported, serve

IMPORTS = (
    "email.parser",
    "encodings.utf_8_sig",
    "libcst.native",
    "mixpert_py.budget",
    "mixpert_py.commands.tables",
    "mixpert_py.decorator",
    "mixpert_py.execution.executor",
    "mixpert_py.launch.running",
    "mixpert_py.passes.cross_check",
    "mixpert_py.runtime.api",
    "mixpert_py.runtime.reference.reference",
    "mixpert_py.commands.rewrite",
    "mixpert_py.tuning.search",
    "networkx",
    "numpy.random",
    "rich._emoji_codes",
    "tomlkit",
)

if __name__ == "__main__":
    keep_imported()
    for name in (*IMPORTS, *(f"mixpert_py.commands.{name}" for name in ALONE)):
        import_module(name)
    forked_runs.use_here()
    serve()
