"""Coupled logistic maps, whose differences double with every step."""

import sys

import numpy as np

rng = np.random.default_rng(int(sys.argv[1]))
coupling = rng.random((150, 150))
coupling /= coupling.sum(1, keepdims=True)
state = rng.random((150, 20))
for _ in range(14):
    state = 3.9 * state * (1 - state)
    state = 0.9 * state + 0.1 * coupling @ state
print(state.mean())
