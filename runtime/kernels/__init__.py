"""Kernels: tensor-core products in CUDA C++, compiled by NVRTC; memory-bound steps in Numba."""

from typing import Final

from mixpert_py.runtime.scheme import Scheme

# Compute capabilities, major · 10 + minor.
LEAST_CAPABILITY: Final = 80  # INT8 tensor cores fed by cp.async
HOPPER: Final = 90  # sm_90a: wgmma; later families have other instructions in its place


def has_kernels(scheme: Scheme) -> bool:
    """Whether a GPU can make a scheme's products. It has no kernels of residues."""
    return not scheme.moduli
