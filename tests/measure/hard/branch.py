"""A step that is halved for as long as a norm is too large: where it stops is a decision."""

import sys

import numpy as np

rng = np.random.default_rng(int(sys.argv[1]))
matrix = rng.standard_normal((120, 120)) / 11
point, step = rng.standard_normal((120, 4)), 1.0
for _ in range(20):
    slope = matrix.T @ (matrix @ point)
    while np.linalg.norm(matrix @ (point - step * slope)) > np.linalg.norm(matrix @ point):
        step /= 2
    point = point - step * slope
print(step, np.linalg.norm(point))
