"""Kernels: tensor-core products in CUDA C++, compiled by NVRTC; memory-bound steps in Numba."""

from typing import Final

# Compute capabilities, major · 10 + minor.
LEAST_CAPABILITY: Final = 80  # INT8 tensor cores fed by cp.async
HOPPER: Final = 90  # sm_90a: wgmma; later families have other instructions in its place
