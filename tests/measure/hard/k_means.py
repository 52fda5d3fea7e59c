"""Clusters that overlap, so that many points are nearly as close to another centre."""

import sys

import numpy as np

rng = np.random.default_rng(int(sys.argv[1]))
points = rng.standard_normal((1500, 24)) + 0.8 * rng.integers(0, 3, (1500, 1))
centres = points[:6].copy()
for _ in range(12):
    distances = (centres**2).sum(1) - 2 * points @ centres.T
    labels = distances.argmin(1)
    centres = np.array([points[labels == i].mean(0) for i in range(6)])
print(np.bincount(labels, minlength=6))
