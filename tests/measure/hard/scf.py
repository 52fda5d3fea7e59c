"""A self-consistent field: the density that a Hamiltonian has, which depends on the density."""

import sys

import numpy as np

rng = np.random.default_rng(int(sys.argv[1]))
n, filled = 80, 20
hopping = rng.standard_normal((n, n)) / np.sqrt(n)
core = (hopping + hopping.T) / 2 + np.diag(np.linspace(-1, 1, n))
mixed = np.zeros(n)
for _ in range(25):
    _, orbitals = np.linalg.eigh(core + 0.7 * np.diag(mixed))
    density = orbitals[:, :filled] @ orbitals[:, :filled].T
    mixed = 0.6 * mixed + 0.4 * np.diag(density)
energy = np.trace(core @ density)
print(energy)
