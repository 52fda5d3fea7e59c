"""A pytest plugin that puts our products in the place of NumPy's in NumPy's own tests.

PRODUCTS in the environment says how: "by name", all that a test module finds under NumPy's names is
ours; "rewritten", the test modules are rewritten as they are imported. SCHEME is in force for them.
"""

import os
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mixpert_py
from mixpert_py.runtime.context import Context, set_default

NAMES = ("matmul", "dot", "inner", "tensordot", "einsum")
OURS = {name: getattr(mixpert_py, name) for name in (*NAMES, "multi_dot")}
THEIRS = {name: getattr(np, name) for name in NAMES} | {"multi_dot": np.linalg.multi_dot}

set_default(Context(scheme=os.environ.get("SCHEME")))
HOOK = mixpert_py.install(["numpy._core.tests", "numpy.linalg.tests"])
if os.environ["PRODUCTS"] == "by name":
    HOOK.uninstall()


class Namespace(ModuleType):
    """A module in which some names mean something else."""

    def __init__(self, module: ModuleType, **instead: Any) -> None:
        super().__init__(module.__name__)
        self.module = module
        vars(self).update(instead)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)


LINALG = Namespace(np.linalg, multi_dot=mixpert_py.multi_dot)
NUMPY = Namespace(np, linalg=LINALG, **{name: OURS[name] for name in NAMES})


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    module = getattr(item, "module", None)
    if os.environ["PRODUCTS"] != "by name" or getattr(module, "np", None) is not np:
        return
    vars(module)["np"] = NUMPY
    replace(module, lambda ours: ours)
    for value in list(vars(module).values()):
        if isinstance(value, type) and value.__module__ == getattr(module, "__name__", None):
            replace(value, staticmethod)  # `matmul = np.matmul`, in a class, is no method


def replace(owner: Any, wrapped: Any) -> None:
    for name, value in list(vars(owner).items()):
        for word, native in THEIRS.items():
            if value is native:
                setattr(owner, name, wrapped(OURS[word]))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(f"rewritten: {sorted(HOOK.rewritten)}")
