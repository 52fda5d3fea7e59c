"""Regression by a Gaussian process whose length scale is chosen by the marginal likelihood."""

import argparse

import numpy as np

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--size", type=int, default=900, help="number of known points")
parser.add_argument("--asked", type=int, default=600)
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

rng = np.random.default_rng(options.seed)
points = rng.uniform(-1.0, 1.0, (options.size + options.asked, 6))
truth = np.sin(3.0 * points[:, 0]) + points[:, 1] * points[:, 2]
measured = truth[: options.size] + 0.05 * rng.standard_normal(options.size)

products = points @ points.T
squares = np.diagonal(products)
distances = np.maximum(squares[:, None] + squares - 2.0 * products, 0.0)

best = -np.inf
for length in (0.5, 0.7, 1.0, 1.4, 2.0):
    covariance = np.exp(-0.5 / length**2 * distances)
    own = covariance[: options.size, : options.size] + 0.05**2 * np.eye(options.size)
    factor = np.linalg.cholesky(own)
    whitened = np.linalg.solve(factor, measured)
    likelihood = -0.5 * whitened @ whitened - np.log(np.diagonal(factor)).sum()
    if likelihood > best:
        best, chosen, inverse = likelihood, length, np.linalg.inv(own)
        cross, prior = np.split(covariance[options.size :], [options.size], axis=1)

mean = cross @ (inverse @ measured)
posterior = prior - cross @ inverse @ cross.T
print(f"length scale    {chosen}")
print(f"error           {np.sqrt(np.mean((mean - truth[options.size :]) ** 2)):.4f}")
print(f"mean deviation  {np.sqrt(np.maximum(np.diagonal(posterior), 0.0)).mean():.4f}")
