"""NumPy's own tests of its products hold for ours, in whatever way a program comes to them."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.every_check import some
from tests.mixpert_py.command import IMPORTABLE

# Whole modules have thousands of other tests to collect.
CLASSES = ("Dot", "Inner", "Matmul", "MatmulInplace", "MatmulOperator", "Methods", "Vdot")
MODULES = [f"numpy._core.tests.test_multiarray::Test{name}" for name in CLASSES]
MODULES += ["numpy._core.tests.test_einsum", "numpy._core.tests.test_numeric::TestTensordot"]
MODULES += ["numpy.linalg.tests.test_linalg::TestMultiDot"]

WAYS = [("by name", None), ("by name", "float64"), ("rewritten", None)]

# Vectors of gigabytes are in the tests of `dot`: they take a minute.
WORDS = "(Dot or Matmul or Inner or Einsum or dot or matmul or einsum or inner) and not huge"


@pytest.mark.skipif(find_spec("numpy._core.tests") is None, reason="this NumPy has no tests")
@pytest.mark.parametrize(("products", "scheme"), some(WAYS))
def test_numpys_tests_of_products_pass(products: str, scheme: str | None, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": IMPORTABLE, "PRODUCTS": products}
    # Which BLAS makes a product is none of ours; its threads only wait for one another here.
    environment |= {"OPENBLAS_NUM_THREADS": "1", **({"SCHEME": scheme} if scheme else {})}
    options = ["-q", "-p", "tests.mixpert_py.products_of_ours", "-p", "no:cacheprovider"]
    # pytest would rewrite the modules for its assertions, in our place.
    options += ["--assert=plain", "-m", "not slow", "-k", WORDS]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--pyargs", *MODULES],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 300
    rewritten = "['numpy._core.tests.test_einsum', " in done.stdout
    assert rewritten == (products == "rewritten"), done.stdout[-500:]
