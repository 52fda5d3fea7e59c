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
BLAS = frozenset(f"scipy.linalg.blas.{letter}gemm" for letter in "sdcz")
LEFT = BLAS | {f"{module}.{name}" for module in ARRAY_MODULES for name in FUNCTIONS}
WORDS = frozenset(name.rpartition(".")[2] for name in LEFT)


def find(node: ast.AST, scope: Scope) -> Found | None:
    """A call that is certainly such a product: names like `inner` mean too much elsewhere."""
    if not isinstance(node, ast.Call):
        return None
    for name in sorted(scope.meanings(node.func) or ()):
        if name in LEFT:
            word = name.rpartition(".")[2]
            return Found(word, f"{word} is left native")
    return None
