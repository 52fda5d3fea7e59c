"""Kernels: tensor-core products in CUDA C++, compiled by NVRTC; memory-bound steps in Numba."""

from typing import Final

from mixpert_py.runtime.scheme import Scheme

# Compute capabilities, major · 10 + minor.
LEAST_CAPABILITY: Final = 80  # INT8 tensor cores fed by cp.async
HOPPER: Final = 90  # sm_90a: wgmma; later families have other instructions in its place
MOST_MODULI: Final = 16  # of kernels of residues: an entry's integer fits three words


def has_kernels(scheme: Scheme, capability: int) -> bool:
    """Whether there are kernels for a scheme's products on devices of a compute capability."""
    if not scheme.moduli:
        return True
    return capability >= LEAST_CAPABILITY and len(scheme.moduli) <= MOST_MODULI
