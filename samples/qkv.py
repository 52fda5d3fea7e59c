"""Queries, keys and values of a large language model's attention, and the scores, in float32."""

import argparse
import importlib

import numpy as np

HEAD = 128  # width of a head


def projections(xp, width, rng):
    """Random matrices of queries, keys and values, (3, width, width), that keep lengths."""
    drawn = rng.standard_normal((3, width, width), np.float32)
    return xp.asarray(drawn) / width**0.5


def in_heads(x):
    """(tokens, width) as (heads, tokens, HEAD)."""
    return x.reshape(len(x), -1, HEAD).swapaxes(0, 1)


def attend(xp, x, w_query, w_key, w_value):
    """Scores (heads, tokens, tokens) of every query against every key, and values of the tokens."""
    query = in_heads(x @ w_query / HEAD**0.5)  # queries are smaller than scores
    key = in_heads(xp.matmul(x, w_key))
    value = xp.dot(x, w_value)
    return query @ key.swapaxes(1, 2), value


def combined(weights, rows):
    """The sum of rows, each times its weight."""
    return (weights[:, None] * rows).sum(axis=0)


def one_token(xp, x, at, w_query, w_key, w_value):
    """Scores (heads, tokens) and value of one query, vector by vector: q · (Kᵀ x) = (K q) · x."""
    query = combined(x[at], w_query)
    scores = []
    for start in range(0, len(query), HEAD):
        head = slice(start, start + HEAD)
        direction = combined(query[head], w_key[:, head].T)
        scores.append(combined(direction, x.T) / HEAD**0.5)
    return xp.stack(scores), combined(x[at], w_value)


def report(xp, options, scores, values, x, matrices):
    """Print how far scores and values of a few tokens are from float64."""
    checked = np.random.default_rng(options.seed).integers(0, options.tokens, options.checked)
    x, matrices = x.astype(xp.float64), matrices.astype(xp.float64)
    exact = [one_token(xp, x, int(at), *matrices) for at in checked]
    wanted_scores, wanted_values = (xp.stack(part) for part in zip(*exact, strict=True))
    at = xp.asarray(checked)
    print(f"tokens                    {options.tokens}, {options.size} wide")
    print(f"compared                  {options.checked} queries")
    for name, found, wanted in (
        ("scores", scores[:, at].swapaxes(0, 1), wanted_scores),
        ("values", values[at], wanted_values),
    ):
        error = float(xp.linalg.norm(found - wanted) / xp.linalg.norm(wanted))
        print(f"relative error of {name}  {error:.1e}")


def parsed(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=4096, help=f"width, a multiple of {HEAD}")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--checked", type=int, default=4, help="queries also done in float64")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gpu", action="store_true", help="use CuPy in place of NumPy")
    options = parser.parse_args(arguments)
    if options.size % HEAD:
        parser.error(f"--size must be a multiple of {HEAD}")
    return options


def problem(xp, options):
    """The activations of the tokens, and the three matrices."""
    rng = np.random.default_rng(options.seed)
    activations = xp.asarray(rng.uniform(0.5, 2.5, (options.tokens, options.size)), xp.float32)
    return activations, projections(xp, options.size, rng)


def work(xp, options, activations, matrices):
    return attend(xp, activations, *matrices)


if __name__ == "__main__":
    options = parsed()
    xp = importlib.import_module("cupy" if options.gpu else "numpy")

    activations, matrices = problem(xp, options)
    scores, values = work(xp, options, activations, matrices)
    report(xp, options, scores, values, activations, matrices)
