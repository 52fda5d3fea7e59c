"""A child process of the gate `cold`: it rewrites, compiles and multiplies for the first time."""

import json
import sys
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mixpert_py.runtime.kernels.tiny_block import Memory

SOURCE = b"def f(a, b):\n    return a @ b\n"
SCHEMES = ("int8x8", "tf32x3")  # whose kernels do not come with the package
SIZE = 512
PLACE = Memory("along", True)
# One that compiles in a second or two.
KERNEL = (
    "mixpert_py.runtime.kernels.tiny_kernels",
    "tiny_kernel",
    (4, 4, 4, PLACE, PLACE, True),
)
CAPABILITY = "90"


def main(backend: str, home: str) -> None:
    """Wait for a line, then print digests of the products made, and whether Numba was needed."""
    print("ready", flush=True)
    sys.stdin.readline()
    sys.dont_write_bytecode = False  # the cache of rewritten code heeds it
    products = [_rewritten(Path(home))]
    if backend == "cuda":
        products += _on_gpu()
    elif find_spec("numba_cuda") is not None:
        _compiled()
    print(json.dumps({"products": products, "compiled": "numba" in sys.modules}))


def _rewritten(home: Path) -> str:
    import numpy as np

    from mixpert_py.sources import in_memory

    script = home / "script.py"
    script.write_bytes(SOURCE)
    found = in_memory.rewritten(SOURCE, "script", str(script), scheme="int8x6")
    assert found is not None
    names: dict[str, Any] = {}
    exec(found.code, names)
    a = np.random.default_rng(1).standard_normal((64, 64))
    return sha256(names["f"](a, a).tobytes()).hexdigest()


def _on_gpu() -> list[str]:
    import cupy
    import numpy as np

    import mixpert_py

    rng = np.random.default_rng(2)
    a, b = (cupy.asarray(rng.standard_normal((SIZE, SIZE)), np.float32) for _ in range(2))
    made = [mixpert_py.matmul(a, b, scheme=name, backend="cuda") for name in SCHEMES]
    return [sha256(product.get().tobytes()).hexdigest() for product in made]


def _compiled() -> None:
    """A kernel for a GPU that is not there. What it is does not depend on who compiled it."""
    from mixpert_py.runtime.kernels import compile as kernels
    from mixpert_py.runtime.kernels import numba_ptx

    def make() -> bytes:
        from numba.cuda import dispatcher

        # Functions that a kernel calls are compiled for the device that is there.
        here = SimpleNamespace(compute_capability=(int(CAPABILITY[0]), int(CAPABILITY[1:])))
        dispatcher.get_current_device = lambda: here
        return numba_ptx.compiled(*KERNEL, CAPABILITY)

    ptx = kernels.cached(kernels.place_of(*map(str, KERNEL), CAPABILITY), make)
    assert kernels.entry(ptx)


if __name__ == "__main__":
    main(*sys.argv[1:])
