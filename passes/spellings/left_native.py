"""Products that are found and listed but not rewritten: `vdot`, `vecdot` …, and calls that other
spellings are not certain of.
"""

import ast

from mixpert_py.passes.found import Found
from mixpert_py.passes.scope import ARRAY_MODULES, Scope

FUNCTIONS = frozenset(
    {"einsum", "tensordot", "inner", "vdot", "vecdot", "matvec", "vecmat"}
    | {"linalg.multi_dot", "linalg.matmul", "linalg.tensordot", "linalg.vecdot"}
    | {"linalg.matrix_power"}
)
BLAS = frozenset({"scipy.linalg.blas.sgemm", "scipy.linalg.blas.dgemm"})
WORDS = frozenset(name.rpartition(".")[2] for name in FUNCTIONS | BLAS)


def find(node: ast.AST, scope: Scope) -> Found | None:
    """A call that is certainly such a product: names like `inner` mean too much elsewhere."""
    if not isinstance(node, ast.Call):
        return None
    for name in sorted(scope.meanings(node.func) or ()):
        module, _, function = name.partition(".")
        if name in BLAS or (module in ARRAY_MODULES and function in FUNCTIONS):
            word = name.rpartition(".")[2]
            return Found(word, f"{word} is left native")
    return None
