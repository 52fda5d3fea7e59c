"""A backend is a module and a record: nothing else knows its name."""

import sys
from types import ModuleType

import numpy as np
import pytest

from mixpert_py import matmul, precision
from mixpert_py.runtime.backends import BACKENDS, Backend
from mixpert_py.runtime.request import Product, Request


def test_a_backend_is_one_module_and_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def multiply(request: Request) -> Product:
        made.append(request.scheme)
        return Product(request.a @ request.b + 1, request.scheme)

    module = ModuleType("a_third_backend")
    monkeypatch.setattr(module, "multiply", multiply, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    row = Backend("third", "", module.__name__, lambda name: None)
    monkeypatch.setitem(BACKENDS, row.name, row)
    a = np.eye(4, dtype=np.float32)
    np.testing.assert_array_equal(matmul(a, a, scheme="int8x6", backend="third"), a + 1)
    with precision("int8x3", backend="third"):
        np.testing.assert_array_equal(matmul(a, a), a + 1)
    assert made == ["int8x6", "int8x3"]
