"""MixPert-Py: the matrix products of a Python program, at the accuracy you choose and no more.

    @mixpert_py.accelerate            rewrite one function
    mixpert_py.install(["net"])       rewrite packages as they are imported
    %load_ext mixpert_py              in a notebook: rewrite the cells under %%mixpert
    mixpert_py.precision("int8x6")    one scheme for all products of a block
    mixpert_py.matmul(a, b), dot …    one product; inner, tensordot, multi_dot, einsum as well
    mixpert_py.observe(name, value)   a value that a tuner judges the program by
    mixpert_py.assert_within_budget(plan, function, …)   a check in your own tests
    mixpert_py.load_plan(path)        a plan file
    mixpert_py.schemes()              names of the schemes, by their error on normal data
    mixpert_py.MixPertError           base of SourceError, PlanError, DeviceError …

The other names are what rewritten programs call in the place of `x.dot(y)`, `@=`, sums, and
functions of SciPy, PyTorch and modules called xp.
Importing this package is quick: everything is loaded where it is first used.
For pytest, which would warn that it is imported already: PYTEST_DONT_REWRITE.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

started_with = frozenset(sys.modules)  # with what Python starts, and what stands above

if TYPE_CHECKING:
    from mixpert_py.budget import assert_within_budget as assert_within_budget
    from mixpert_py.config import load_plan as load_plan
    from mixpert_py.decorator import accelerate as accelerate
    from mixpert_py.errors import BudgetError as BudgetError
    from mixpert_py.errors import DeviceError as DeviceError
    from mixpert_py.errors import MixPertError as MixPertError
    from mixpert_py.errors import PlanError as PlanError
    from mixpert_py.errors import ProgramError as ProgramError
    from mixpert_py.errors import ShapeError as ShapeError
    from mixpert_py.errors import SourceError as SourceError
    from mixpert_py.execution.outputs import observe as observe
    from mixpert_py.import_hook import install as install
    from mixpert_py.runtime.api import dot as dot
    from mixpert_py.runtime.api import dot_method as dot_method
    from mixpert_py.runtime.api import matmul as matmul
    from mixpert_py.runtime.modules import precision as precision
    from mixpert_py.runtime.products.blas import blas_gemm as blas_gemm
    from mixpert_py.runtime.products.einsum import einops_einsum as einops_einsum
    from mixpert_py.runtime.products.einsum import einsum as einsum
    from mixpert_py.runtime.products.in_place import imatmul as imatmul
    from mixpert_py.runtime.products.in_place import target as target
    from mixpert_py.runtime.products.inner import inner as inner
    from mixpert_py.runtime.products.inner import tensordot as tensordot
    from mixpert_py.runtime.products.multi_dot import matrix_power as matrix_power
    from mixpert_py.runtime.products.multi_dot import multi_dot as multi_dot
    from mixpert_py.runtime.products.tensors import torch_call as torch_call
    from mixpert_py.runtime.products.tensors import torch_matmul as torch_matmul
    from mixpert_py.runtime.products.xp import reduce_product as reduce_product
    from mixpert_py.runtime.products.xp import xp_product as xp_product
    from mixpert_py.runtime.schemes import schemes as schemes

__version__ = "0.1.0"

# The modules and the public names that they define; type checkers read the imports above.
_NAMES = {
    "mixpert_py.budget": "assert_within_budget",
    "mixpert_py.config": "load_plan",
    "mixpert_py.decorator": "accelerate",
    "mixpert_py.errors": "BudgetError DeviceError MixPertError PlanError ProgramError ShapeError "
    "SourceError",
    "mixpert_py.import_hook": "install",
    "mixpert_py.execution.outputs": "observe",
    "mixpert_py.runtime.api": "dot dot_method matmul",
    "mixpert_py.runtime.modules": "precision",
    "mixpert_py.runtime.products.blas": "blas_gemm",
    "mixpert_py.runtime.products.einsum": "einops_einsum einsum",
    "mixpert_py.runtime.products.in_place": "imatmul target",
    "mixpert_py.runtime.products.inner": "inner tensordot",
    "mixpert_py.runtime.products.multi_dot": "matrix_power multi_dot",
    "mixpert_py.runtime.products.tensors": "torch_call torch_matmul",
    "mixpert_py.runtime.products.xp": "reduce_product xp_product",
    "mixpert_py.runtime.schemes": "schemes",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
# `%load_ext mixpert_py` looks for these.
_EXTENSION = dict.fromkeys(
    ("load_ipython_extension", "unload_ipython_extension"), "mixpert_py.notebook"
)

__all__ = sorted(_HOMES)


def __dir__() -> list[str]:
    return sorted({*__all__, *[name for name in globals() if name.startswith("__")]})


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name) or _EXTENSION.get(name)
    if home is None:
        raise AttributeError(f"module 'mixpert_py' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    if home.startswith("mixpert_py.runtime"):
        # The runtime knows no files and no environment; plans are found by the face.
        import_module("mixpert_py.config").look_up_plans()
        import_module("mixpert_py.compiled").follow()
    globals()[name] = value  # where the next look-up does not come here
    return value
