"""A block-Jacobi preconditioner: many 16 × 16 blocks, inverted by products alone."""

import argparse
import importlib

import numpy as np

SIDE = 16


def blocks(count, rng):
    """Symmetric positive definite blocks (count, 16, 16), of condition 2 to 10 or so."""
    factors = rng.standard_normal((count, SIDE, SIDE)).astype(np.float32)
    return factors @ factors.swapaxes(1, 2) / SIDE + 0.5 * np.eye(SIDE, dtype=np.float32)


def inverted(xp, a, steps):
    """The inverses of the matrices a, by Newton's iteration X ← X (2 − A X) of Schulz."""
    twice = 2 * xp.eye(SIDE, dtype=a.dtype)
    # Of a symmetric matrix the largest row sum bounds every eigenvalue.
    x = xp.eye(SIDE, dtype=a.dtype) / abs(a).sum(axis=2).max(axis=1)[:, None, None]
    for _ in range(steps):
        x = xp.matmul(x, twice - xp.matmul(a, x))
    return x


def parsed(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=16384, help="number of blocks")
    parser.add_argument("--steps", type=int, default=10, help="of Newton's iteration")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gpu", action="store_true", help="use CuPy in place of NumPy")
    return parser.parse_args(arguments)


def problem(xp, options):
    """The blocks, and 16 vectors for each."""
    rng = np.random.default_rng(options.seed)
    a = xp.asarray(blocks(options.size, rng))
    return a, xp.asarray(rng.standard_normal(a.shape).astype(np.float32))


def work(xp, options, a, vectors):
    return (inverted(xp, a, options.steps) @ vectors,)


def report(xp, options, applied, a, vectors):
    """Print how far the result is from float64's."""
    exact = xp.linalg.solve(a.astype(xp.float64), vectors.astype(xp.float64))
    error = abs(applied - exact)
    print(f"blocks         {options.size} of {SIDE} × {SIDE}")
    print(f"largest        {float(abs(exact).max()):.6f}")
    print(f"mean error     {float(error.mean()):.3e}")
    print(f"maximum error  {float(error.max()):.3e}")


if __name__ == "__main__":
    options = parsed()
    xp = importlib.import_module("cupy" if options.gpu else "numpy")

    a, vectors = problem(xp, options)
    (applied,) = work(xp, options, a, vectors)
    report(xp, options, applied, a, vectors)
