"""Random points of many kinds, told apart by the kinds of their nearest neighbours."""

import argparse
import importlib

import numpy as np


def clustered(xp, count, width, kinds, spread, rng):
    """Points (count, width), `spread` around as many random centres as kinds, and their kinds."""
    centres = xp.asarray(rng.standard_normal((kinds, width), np.float32))
    kind = xp.asarray(rng.integers(0, kinds, count))
    around = xp.asarray(rng.standard_normal((count, width), np.float32))
    return centres[kind] + spread * around, kind


def squares(xp, x):
    """|x|² of every row, in float64: distances are small differences of them."""
    return xp.einsum("ij,ij->i", x, x, dtype="float64")


def nearest(xp, asked, known, count):
    """Squared distances (asked, count) to the nearest known points, and their places."""
    # |x − y|² = |x|² − 2 (x·y − ½ |y|²), so the nearest y have the largest parentheses.
    near = asked @ known.T
    near -= 0.5 * squares(xp, known)
    rows, largest, places = xp.arange(len(asked)), [], []
    for _ in range(count):
        place = near.argmax(axis=1)
        largest.append(near[rows, place])
        places.append(place)
        near[rows, place] = -xp.inf
    distances = squares(xp, asked)[:, None] - 2.0 * xp.stack(largest, axis=1)
    return distances, xp.stack(places, axis=1)


def parsed(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=4096, help="number of known points")
    parser.add_argument("--asked", type=int, default=2048, help="number of points to tell apart")
    parser.add_argument("--width", type=int, default=512, help="coordinates of a point")
    parser.add_argument("--kinds", type=int, default=64)
    parser.add_argument("--neighbours", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
    parser.add_argument("--gpu", action="store_true", help="use CuPy in place of NumPy")
    return parser.parse_args(arguments)


def problem(xp, options):
    """Points, the known ones first, and their kinds."""
    rng = np.random.default_rng(options.seed)
    count = options.size + options.asked
    spread = 0.7 * options.width**0.25  # so that some neighbours are of another kind
    points, kinds = clustered(xp, count, options.width, options.kinds, spread, rng)
    return points.astype(options.dtype), kinds


def work(xp, options, points, kinds):
    return nearest(xp, points[options.size :], points[: options.size], options.neighbours)


def report(xp, options, distances, places, points, kinds):
    """Print how many of the asked points have their own kind for most of their neighbours."""
    found = kinds[places]
    votes = (found[:, :, None] == found[:, None, :]).sum(axis=2)
    elected = found[xp.arange(len(found)), votes.argmax(axis=1)]
    right = (elected == kinds[options.size :]).mean()
    print(f"known points   {options.size}, {options.width} coordinates each")
    print(f"asked points   {options.asked}")
    print(f"mean distance  {float(xp.sqrt(xp.maximum(distances, 0.0)).mean()):.6f}")
    print(f"accuracy       {float(right):.4f}")


if __name__ == "__main__":
    options = parsed()
    xp = importlib.import_module("cupy" if options.gpu else "numpy")

    points, kinds = problem(xp, options)
    distances, places = work(xp, options, points, kinds)
    report(xp, options, distances, places, points, kinds)
