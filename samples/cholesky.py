"""Blocked Cholesky factor of the covariance of a Gaussian process at scattered points."""

import argparse

import numpy as np


def covariance(points, noise, length):
    """Rational quadratic kernel of the points, plus the variance of each measurement's noise."""
    kernel = np.subtract.outer(points / length, points / length)
    np.square(kernel, out=kernel)
    kernel += 1.0
    np.reciprocal(kernel, out=kernel)
    kernel[np.diag_indices_from(kernel)] += noise**2
    return kernel


def factorize(matrix, block, strip):
    """L with L Lᵀ = matrix, right-looking: blocks of columns, factored strip by strip.

    Above the diagonal blocks nothing is computed.
    """
    a = matrix.copy()
    n = len(a)
    for left in range(0, n, block):
        right = min(left + block, n)

        for start in range(left, right, strip):
            stop = min(start + strip, right)
            corner = np.linalg.cholesky(a[start:stop, start:stop])
            # A corner is small and well conditioned: its inverse is as good as substitution.
            column = np.matmul(a[stop:, start:stop], np.linalg.inv(corner).T)
            a[start:stop, start:stop] = corner
            a[stop:, start:stop] = column
            a[stop:, stop:right] -= column @ column[: right - stop].T

        # Look-ahead: the block that is factored next comes first, then all the others.
        panel = a[right:, left:right]
        ahead = min(block, n - right)
        a[right:, right : right + ahead] -= np.dot(panel, panel[:ahead].T)
        for start in range(ahead, n - right, block):
            rest = panel[start:]
            a[right + start :, right + start : right + start + block] -= rest.dot(rest[:block].T)
    return np.tril(a)


def relative_residual(matrix, factor, rng):
    """‖A − L Lᵀ‖ / ‖A‖ as one random vector z sees it: ‖A z − L (Lᵀ z)‖ / ‖A z‖."""
    z = rng.standard_normal(len(matrix))
    expected = np.einsum("ij,j->i", matrix, z)
    found = np.einsum("ij,j->i", factor, np.einsum("ij,i->j", factor, z))
    return np.linalg.norm(expected - found) / np.linalg.norm(expected)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=4608, help="number of points")
    parser.add_argument("--block", type=int, default=768, help="columns in a block")
    parser.add_argument("--strip", type=int, default=192, help="columns in a strip")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    rng = np.random.default_rng(options.seed)
    points = rng.uniform(0.0, 1000.0, options.size)
    noise = rng.uniform(0.4, 1.0, options.size)
    matrix = covariance(points, noise, length=100.0)

    factor = factorize(matrix, options.block, options.strip)

    print(f"points             {options.size}")
    print(f"log-determinant    {2 * np.log(np.diagonal(factor)).sum():.6f}")
    print(f"relative residual  {relative_residual(matrix, factor, rng):.1e}")
