"""A command server that has imported what most commands of `mixpert` use."""

import networkx  # noqa: F401
import numpy.random  # noqa: F401
import tomlkit  # noqa: F401

import mixpert_py.cli
import mixpert_py.commands.tables
import mixpert_py.execution.executor
import mixpert_py.launch.running
import mixpert_py.passes.cross_check
import mixpert_py.runtime.api
import mixpert_py.runtime.reference.reference
import mixpert_py.sources.rewriting
import mixpert_py.tuning.search
from tests.mixpert_py import forked_runs
from tests.mixpert_py.command_server import serve

if __name__ == "__main__":
    forked_runs.use_here()
    serve()
