"""Inverse of a covariance by Newton and Schulz's iteration, and what is solved with it."""

import argparse

import numpy as np

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--size", type=int, default=700)
parser.add_argument("--steps", type=int, default=24)
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

rng = np.random.default_rng(options.seed)
factors = rng.standard_normal((options.size, options.size))
covariance = factors @ factors.T / options.size + 0.1 * np.eye(options.size)
inverse = covariance.T / (np.linalg.norm(covariance, 1) * np.linalg.norm(covariance, np.inf))
for _ in range(options.steps):
    remainder = 2.0 * np.eye(options.size) - covariance @ inverse
    inverse = inverse @ remainder
right = rng.standard_normal((options.size, 32))
solution = inverse @ right
print(f"residual  {np.linalg.norm(covariance @ solution - right):.3e}")
