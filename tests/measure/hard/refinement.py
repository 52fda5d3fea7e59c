"""Iterative refinement of a system that is not well conditioned, from a rough inverse."""

import sys

import numpy as np

rng = np.random.default_rng(int(sys.argv[1]))
n = 160
left, _ = np.linalg.qr(rng.standard_normal((n, n)))
right, _ = np.linalg.qr(rng.standard_normal((n, n)))
matrix = left * np.logspace(0, -4, n) @ right
wanted = rng.standard_normal((n, 8))
inverse = np.linalg.inv(matrix.astype("f")).astype("d")
solution = inverse @ wanted
for _ in range(6):
    residual = wanted - matrix @ solution
    solution += inverse @ residual
print(solution[:2, :2])
