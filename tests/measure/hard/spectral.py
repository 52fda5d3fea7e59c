"""Spectral clustering of three rings of points that nearly touch."""

import sys

import numpy as np

rng = np.random.default_rng(int(sys.argv[1]))
angle, ring = rng.uniform(0, 2 * np.pi, 180), np.repeat([1.0, 1.8, 2.6], 60)
points = (ring + 0.12 * rng.standard_normal(180)) * np.array([np.cos(angle), np.sin(angle)])
gram = points.T @ points
square = np.diag(gram)
affinity = np.exp((2 * gram - square - square[:, None]) / 0.08)
degree = affinity.sum(0) ** -0.5
basis = rng.standard_normal((180, 3))
for _ in range(60):
    basis, _ = np.linalg.qr((degree[:, None] * affinity * degree) @ basis)
seeds = basis[[10, 70, 130]]
labels = (basis @ seeds.T).argmax(1)
print(np.bincount(labels, minlength=3))
