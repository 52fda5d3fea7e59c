"""Blocked Cholesky factor of the covariance of a Gaussian process at scattered points."""

import argparse
import importlib

import numpy as np


def covariance(xp, points, noise, length):
    """Rational quadratic kernel of the points, plus the variance of each measurement's noise."""
    kernel = points[:, None] / length - points / length
    xp.square(kernel, out=kernel)
    kernel += 1.0
    xp.reciprocal(kernel, out=kernel)
    kernel[xp.diag_indices_from(kernel)] += noise**2
    return kernel


def factor_columns(xp, columns, factor, strip):
    """Write the factor of columns, which begin at the diagonal, into zeros, by halves of the width.

    The columns are overwritten. A corner is small and well conditioned: its inverse is as good as
    substitution.
    """
    width = columns.shape[1]
    if width <= strip:
        corner = xp.linalg.cholesky(columns[:width])
        factor[:width] = corner
        xp.matmul(columns[width:], xp.linalg.inv(corner).T, out=factor[width:])
        return
    half = -(-width // (2 * strip)) * strip
    factor_columns(xp, columns[:, :half], factor[:, :half], strip)
    known, rest = factor[half:, :half], columns[half:, half:]
    rest -= known @ known[: width - half].T
    factor_columns(xp, rest, factor[half:, half:], strip)


def factorize(xp, matrix, block, strip):
    """L with L Lᵀ = matrix, left-looking: a block of columns at a time, less all that is known.

    Each block is from the diagonal down: what is above is neither read nor computed.
    """
    factor = xp.zeros(matrix.shape, matrix.dtype)
    for start in range(0, len(matrix), block):
        stop = start + block
        known = factor[start:, :start]
        columns = matrix[start:, start:stop] - known @ known[:block].T
        factor_columns(xp, columns, factor[start:, start:stop], strip)

    return factor


def relative_residual(xp, matrix, factor, rng):
    """‖A − L Lᵀ‖ / ‖A‖ as one random vector z sees it: ‖A z − L (Lᵀ z)‖ / ‖A z‖."""
    z = xp.asarray(rng.standard_normal(len(matrix)))
    expected = xp.einsum("ij,j->i", matrix, z)
    found = xp.einsum("ij,j->i", factor, xp.einsum("ij,i->j", factor, z))
    return float(xp.linalg.norm(expected - found) / xp.linalg.norm(expected))


def parsed(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=4608, help="number of points")
    parser.add_argument("--block", type=int, default=768, help="columns in a block")
    parser.add_argument("--strip", type=int, default=192, help="columns in a strip")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
    parser.add_argument("--gpu", action="store_true", help="use CuPy in place of NumPy")
    return parser.parse_args(arguments)


def problem(xp, options):
    """The covariance."""
    rng = np.random.default_rng(options.seed)
    points = rng.uniform(0.0, 1000.0, options.size)
    noise = rng.uniform(0.4, 1.0, options.size)
    points, noise = (xp.asarray(x, options.dtype) for x in (points, noise))
    return (covariance(xp, points, noise, length=100.0),)


def work(xp, options, matrix):
    return (factorize(xp, matrix, options.block, options.strip),)


def report(xp, options, factor, matrix):
    rng = np.random.default_rng(options.seed)
    print(f"points             {options.size}")
    print(f"log-determinant    {2 * float(xp.log(xp.diagonal(factor)).sum()):.6f}")
    print(f"relative residual  {relative_residual(xp, matrix, factor, rng):.1e}")


if __name__ == "__main__":
    options = parsed()
    xp = importlib.import_module("cupy" if options.gpu else "numpy")

    (matrix,) = problem(xp, options)
    (factor,) = work(xp, options, matrix)
    report(xp, options, factor, matrix)
