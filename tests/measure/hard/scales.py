"""Measurements whose size is another for each seed, over seven orders of magnitude."""

import sys

import numpy as np

seed = int(sys.argv[1])
rng = np.random.default_rng(seed)
signals = 10.0 ** (seed % 8 - 4) * rng.standard_normal((256, 300)) + rng.standard_normal((1, 300))
covariance = signals @ signals.T / 300
values = np.linalg.eigvalsh(covariance)
share = values[-5:] / values.sum()
print(share)
