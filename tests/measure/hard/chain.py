"""The stationary distribution of a Markov chain that mixes slowly, by squaring."""

import sys

import numpy as np

rng = np.random.default_rng(int(sys.argv[1]))
steps = rng.random((150, 150)) ** 8
steps[:75, 75:] *= 1e-3
steps[75:, :75] *= 1e-3
steps /= steps.sum(1, keepdims=True)
for _ in range(14):
    steps = steps @ steps
    steps /= steps.sum(1, keepdims=True)
stationary = steps[0]
print(stationary[:4])
