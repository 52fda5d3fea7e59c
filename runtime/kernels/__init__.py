"""Kernels: tensor-core products in CUDA C++, compiled by NVRTC; memory-bound steps in Numba."""
