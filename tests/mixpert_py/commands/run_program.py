"""A program with a product, and what `python` makes of a command line."""

import subprocess
import sys
from pathlib import Path

from tests.mixpert_py.command import Said

PRODUCT = """\
import sys
import numpy as np
a = np.arange(640000.0).reshape(800, 800) / 1e6
b = a @ a
print(float(b[3, 4]).hex())
"""


def python(tmp_path: Path, *arguments: str) -> Said:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    return Said(done.returncode, done.stdout, done.stderr)
