"""Least squares of columns in metres, pascals, seconds and shares: 1e-6 to 1e6."""

import sys

import numpy as np

rng = np.random.default_rng(int(sys.argv[1]))
units = 10.0 ** rng.integers(-6, 7, 40)
table = rng.standard_normal((2000, 40)) * units
answer = table @ (rng.standard_normal(40) / units) + 0.1 * rng.standard_normal(2000)
normal, side = table.T @ table, table.T @ answer
scale = np.sqrt(np.diag(normal))
coefficients = np.linalg.solve(normal / scale / scale[:, None], side / scale)
print(coefficients[:4])
