"""Which genetic markers go together: 2-way correlation of allele counts, as CoMet computes it."""

import argparse
import importlib

import numpy as np


def markers(count, people, pairs, rng):
    """Alleles (count, people) 0, 1 or 2, −1 where unknown; marker 2i + 1 repeats 2i, i < pairs."""
    frequency = rng.uniform(0.2, 0.5, (count, 1))
    alleles = sum((rng.random((count, people)) < frequency).astype(np.int8) for _ in range(2))
    repeated = rng.random((pairs, people)) < 0.9
    alleles[1 : 2 * pairs : 2][repeated] = alleles[: 2 * pairs : 2][repeated]
    alleles[rng.random(alleles.shape) < 0.02] = -1
    return alleles


def correlation(xp, alleles, dtype="float32"):
    """Custom correlation coefficient of all pairs of markers, (count, count, 2, 2) by alleles.

    How often alleles come together is counted over the people of whom both markers are known.
    """
    known = (alleles >= 0).astype(dtype)
    ones = xp.maximum(alleles, 0).astype(dtype)

    both = ones @ ones.T
    first = xp.matmul(ones, known.T)
    people = xp.dot(known, known.T)
    second = first.T
    table = [4 * people - 2 * first - 2 * second + both, 2 * second - both, 2 * first - both, both]
    together = xp.stack(table, axis=-1).reshape(*both.shape, 2, 2) / (4 * people[..., None, None])

    high = ones.sum(axis=1) / (2 * known.sum(axis=1))
    rarity = 1 - xp.stack([1 - high, high], axis=-1) / 1.5
    return 4.5 * together * rarity[:, None, :, None] * rarity[None, :, None, :]


def strongest(xp, strength, count):
    """The pairs i < j of greatest strength, strongest first."""
    places = xp.argsort(xp.triu(strength, 1), axis=None)[::-1][:count]
    return [(int(place // len(strength)), int(place % len(strength))) for place in places]


def parsed(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=512, help="number of markers")
    parser.add_argument("--people", type=int, default=32768, help="whose alleles are counted")
    parser.add_argument("--pairs", type=int, default=40, help="of markers that repeat another")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--gpu", action="store_true", help="use CuPy in place of NumPy")
    options = parser.parse_args(arguments)
    if 2 * options.pairs > options.size:
        parser.error("--pairs must be at most half of --size")
    return options


def problem(xp, options):
    """The alleles."""
    rng = np.random.default_rng(options.seed)
    return (xp.asarray(markers(options.size, options.people, options.pairs, rng)),)


def work(xp, options, alleles):
    return (correlation(xp, alleles, options.dtype),)


def report(xp, options, coefficients, alleles):
    """Print how strongly the markers go together that do so most, and whether these were meant."""
    strength = coefficients.max(axis=(2, 3))
    found = strongest(xp, strength, options.pairs)
    planted = {(2 * i, 2 * i + 1) for i in range(options.pairs)}
    print(f"markers        {options.size}, {options.people} people")
    print(f"strongest      {float(strength[found[0]]):.6f}")
    print(f"weakest found  {float(strength[found[-1]]):.6f}")
    print(f"pairs found    {len(planted & set(found)) / options.pairs:.4f}")


if __name__ == "__main__":
    options = parsed()
    xp = importlib.import_module("cupy" if options.gpu else "numpy")

    (alleles,) = problem(xp, options)
    (coefficients,) = work(xp, options, alleles)
    report(xp, options, coefficients, alleles)
