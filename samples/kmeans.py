"""Lloyd's k-means on random points of many kinds."""

import argparse
import importlib

import numpy as np


def clustered(xp, count, width, kinds, spread, rng):
    """Points (count, width), `spread` around as many random centres as kinds, and their kinds."""
    centres = xp.asarray(rng.standard_normal((kinds, width), np.float32))
    kind = xp.asarray(rng.integers(0, kinds, count))
    around = xp.asarray(rng.standard_normal((count, width), np.float32))
    return centres[kind] + spread * around, kind


def nearest(xp, points, centres):
    """The index of the centre nearest to each point, and x·c − ½ |c|² of the two."""
    # |x − c|² = |x|² − 2 (x·c − ½ |c|²), so the nearest c has the largest parenthesis.
    near = xp.dot(points, centres.T)
    near -= 0.5 * (centres**2).sum(axis=1)
    places = near.argmax(axis=1)
    return places, near[xp.arange(len(points)), places]


def means(xp, points, places, centres):
    """The mean of each cluster, or its old centre if nothing is nearest to it."""
    members = xp.zeros((len(points), len(centres)), points.dtype)
    members[xp.arange(len(points)), places] = 1.0
    totals = members.T @ points
    counts = xp.bincount(places, minlength=len(centres)).astype(points.dtype)[:, None]
    return xp.where(counts > 0, totals / xp.maximum(counts, 1.0), centres)


def parsed(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=8192, help="number of points")
    parser.add_argument("--width", type=int, default=256, help="coordinates of a point")
    parser.add_argument("--clusters", type=int, default=128, help="as many as there are kinds")
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
    parser.add_argument("--gpu", action="store_true", help="use CuPy in place of NumPy")
    return parser.parse_args(arguments)


def problem(xp, options):
    """The points, and a first centre near to those of each kind."""
    rng = np.random.default_rng(options.seed)
    points, kinds = clustered(xp, options.size, options.width, options.clusters, 1.0, rng)
    order = xp.argsort(kinds)
    first = order[xp.searchsorted(kinds[order], xp.arange(options.clusters))]
    points = points.astype(options.dtype)
    return points, points[first], kinds


def work(xp, options, points, centres, kinds):
    for _ in range(options.iterations):
        places, _ = nearest(xp, points, centres)
        centres = means(xp, points, places, centres)
    places, largest = nearest(xp, points, centres)
    return (points**2).sum(axis=1) - 2.0 * largest, centres, places


def report(xp, options, distances, centres, places, points, first, kinds):
    """Print how near the points are to their centres, and how many have that of their kind."""
    print(f"points    {options.size}, {options.width} coordinates each")
    print(f"inertia   {float(distances.sum()):.6e}")
    print(f"accuracy  {float((places == kinds).mean()):.4f}")


if __name__ == "__main__":
    options = parsed()
    xp = importlib.import_module("cupy" if options.gpu else "numpy")

    points, first, kinds = problem(xp, options)
    distances, centres, places = work(xp, options, points, first, kinds)
    report(xp, options, distances, centres, places, points, first, kinds)
