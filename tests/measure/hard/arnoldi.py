"""Ritz values of a matrix that is not normal, by Arnoldi's method without another pass."""

import sys

import numpy as np

rng = np.random.default_rng(int(sys.argv[1]))
n, steps = 200, 24
matrix = np.triu(rng.standard_normal((n, n))) / 10 + np.diag(np.linspace(1, 3, n))
basis, hessenberg = np.zeros((n, steps + 1)), np.zeros((steps + 1, steps))
basis[:, 0] = rng.standard_normal(n)
basis[:, 0] /= np.linalg.norm(basis[:, 0])
for j in range(steps):
    vector = matrix @ basis[:, j]
    hessenberg[: j + 1, j] = basis[:, : j + 1].T @ vector
    vector = vector - basis[:, : j + 1] @ hessenberg[: j + 1, j]
    hessenberg[j + 1, j] = np.linalg.norm(vector)
    basis[:, j + 1] = vector / hessenberg[j + 1, j]
largest = np.abs(np.linalg.eigvals(hessenberg[:steps])).max()
print(largest)
