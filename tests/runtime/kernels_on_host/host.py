"""CUDA C++ kernels compiled for the host, and NumPy's memory in the place of the device's."""

import ctypes
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mixpert_py.runtime.kernels.compile import source_text

HEADER = Path(__file__).with_name("cuda.h")
# What is written in PTX, and what does the same here.
# Of Hopper's instructions, whole functions: what begins them, and what they do here.
BODIES = {
    "void multiply(Sum (&d)[REGISTERS], const u32 (&a)[4], u64 b, int keep)": "",
    "void multiply(Sum (&d)[REGISTERS], u64 a, u64 b, int keep)": (
        "multiply_in_group(d, REGISTERS, a, b);"
    ),
    "void load_fragment(u32 (&f)[4], u32 address)": "",
    "u64 describe(u32 address)": "return address;",
    "void wait(u32 barrier, int parity)": "wait_at(barrier, parity);",
    "void release(u32 barrier)": "arrive_at(barrier, 1, 0);",
    "void expect(u32 barrier, int bytes)": "arrive_at(barrier, 1, bytes);",
    "void copy(u32 to, const unsigned char *from, int bytes, u32 barrier)": (
        "copy_bulk(to, from, bytes, barrier);"
    ),
}
REPLACED = (
    *(
        (re.escape(f"{begin} {{") + r".*?\n}", f"{begin} {{ {body} }}")
        for begin, body in BODIES.items()
    ),
    (r'asm volatile\("(wgmma|setmaxnreg|fence)[^;]*;"[^;]*;', ""),
    (
        r'asm volatile\("mbarrier\.init[^;]*;" ::"r"\(([^)]*)\)\);',
        r"make_barrier(\1, 1);",
    ),
    (
        r'asm volatile\("mbarrier\.init[^;]*;" ::"r"\(([^)]*)\),\s*"r"\(([^)]*)\)\);',
        r"make_barrier(\1, \2);",
    ),
    (r"\(u32\)__cvta_generic_to_shared\(barriers\)", "1 << 24"),
    (r'asm volatile\("griddepcontrol[^;]*;"[^;]*;', ""),
    (r'asm\("cvt\.f64\.f32[^;]*;" : "=d"\(found\) : "f"\(x\)\);', "found = x;"),
    (r'asm\("cvt\.rn\.f32\.f64[^;]*;" : "=f"\(value\) : "d"\(x\)\);', "value = (float)x;"),
    (r'asm\("sub\.rn\.f32[^;]*;"[^;]*;', "found = x - y;"),
    (r'asm\("add\.rn\.f32[^;]*;"[^;]*;', "found = x + y;"),
    (r'asm\("dp4a[^;]*;" : "=r"\(found\)[^;]*;', "found = dp4a(bytes, weights, sum);"),
    (
        r"extern __shared__ __align__\(16\) double2 held\[\];",
        "double2 *held = (double2 *)dynamic_shared.data();",
    ),
    (
        r"extern __shared__ __align__\(1024\) unsigned char memory\[\];",
        "unsigned char *memory = nullptr;",
    ),
    (r"\(u32\)__cvta_generic_to_shared\(memory\)", "0"),  # of dynamic shared memory
    (r'asm volatile\("cp\.async\.cg[^;]*;"[^;]*;', "copy_async(to, from);"),
    (r'asm volatile\("cp\.async\.commit_group;"[^;]*;', "commit_copies();"),
    (r'asm volatile\("cp\.async\.wait_group[^;]*;"[^;]*;', "wait_for_copies(PENDING);"),
    (r'asm volatile\("ldmatrix[^;]*;"[^;]*;', "load_four(to, from);"),
    (
        r'asm volatile\("mma\.sync\.aligned\.m16n8k[^;]*;"[^;]*;',
        "multiply_in_warp(sum, a, b, A_TYPE, B_TYPE);",
    ),
)
EXACT = "-ffp-contract=off", "-frounding-math", "-mfma"
OPTIONS = "-std=c++17", *EXACT, "-shared", "-fPIC", "-w"


def library(source: str, path: Path, optimized: str = "-O0") -> ctypes.CDLL:
    """C++ that may use cuda.h, compiled to a file that ends in .so."""
    text = path.with_suffix(".cpp")
    text.write_text(f'#include "{HEADER}"\n{source}\n')
    subprocess.run(["g++", optimized, *OPTIONS, "-o", path, text], check=True)
    return ctypes.CDLL(str(path))


class HostKernel:
    """A kernel of so many addresses and 64-bit integers, which runs when it is launched."""

    def __init__(self, run: Callable[..., Any], count: int) -> None:
        self._run, self.count = run, count

    def launch_words(
        self, grid: int, block: int, words: tuple[int, ...], shared: int, stream: object
    ) -> None:
        shape = (ctypes.c_int(one) for one in (grid, block, shared))
        self._run(*shape, *map(ctypes.c_longlong, words))


def kernels(
    file: str,
    definitions: tuple[tuple[str, int | str], ...],
    path: Path,
    optimized: str = "-O0",
) -> dict[str, HostKernel]:
    """All kernels of a file of CUDA C++, by name."""
    source = source_text(file, definitions)
    for pattern, replacement in REPLACED:
        source = re.sub(pattern, replacement, source, flags=re.DOTALL)
    assert "asm" not in source
    found = re.findall(r'extern "C" __global__ void[^{]*?\n?(\w+)\(([^)]*)\) \{', source)
    for name, parameters in found:
        kinds = [
            p.strip()[: p.strip().rindex("*") + 1] if "*" in p else ""
            for p in parameters.split(",")
        ]
        given = ", ".join(f"long long a{i}" for i in range(len(kinds)))
        cast = ", ".join(f"({kind})a{i}" if kind else f"a{i}" for i, kind in enumerate(kinds))
        source += f'extern "C" void run_{name}(int grid, int threads, int shared, {given}) '
        source += f"{{ launch(grid, threads, shared, {name}, {cast}); }}\n"
    loaded = library(source, path, optimized)
    return {
        name: HostKernel(getattr(loaded, f"run_{name}"), parameters.count(",") + 1)
        for name, parameters in found
    }


class Memory:
    """Memory of the host as an allocation of the device. It begins as what kernels must not use."""

    def __init__(self, size: int) -> None:
        self.bytes = np.full(size + 512, 0xAB, np.uint8)
        self.ptr = -(-self.bytes.ctypes.data // 256) * 256


def seen(address: int, shape: tuple[int, ...], dtype: Any) -> Any:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_ubyte * size).from_address(address), dtype).reshape(shape)


class Pointer:
    def __init__(self, ptr: int) -> None:
        self.ptr, self.device_id = ptr, 0


class HostArray(np.ndarray[Any, Any]):
    """A NumPy array with the address of its memory as CuPy's arrays have it."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        return Pointer(self.ctypes.data)
