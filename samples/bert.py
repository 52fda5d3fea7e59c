"""One encoder layer of BERT-base, with random weights, reads a batch of token sequences."""

import argparse
import importlib

import numpy as np

WIDTH, HEADS, INNER = 768, 12, 3072
WORDS = 2000


def parameters(xp, rng):
    """Matrices and biases of the layer's linear maps, float32, spread about as in a trained one."""
    shapes = dict.fromkeys(("query", "key", "value", "out"), (WIDTH, WIDTH))
    shapes |= {"up": (WIDTH, INNER), "down": (INNER, WIDTH)}
    matrices = {name: 0.04 * rng.standard_normal(shape) for name, shape in shapes.items()}
    biases = {name: 0.04 * rng.standard_normal(fan_out) for name, (_, fan_out) in shapes.items()}
    return single(xp, matrices), single(xp, biases)


def single(xp, arrays):
    return {name: xp.asarray(x, xp.float32) for name, x in arrays.items()}


def double(xp, arrays):
    return {name: x.astype(xp.float64) for name, x in arrays.items()}


def normalized(x):
    """Every token with mean 0 and variance 1, in place of x."""
    x -= x.mean(axis=-1, keepdims=True)
    x /= ((x * x).mean(axis=-1, keepdims=True) + 1e-12) ** 0.5
    return x


def exponentials(xp, x):
    """The numerators of softmax: exp(x), the largest of each row 1, in place of x."""
    x -= x.max(axis=-1, keepdims=True)
    return xp.exp(x, out=x)


def gelu(xp, x):
    """BERT's own approximation of x Φ(x), in place of x.

    x (1 + tanh y) / 2 = x / (1 + exp(−2y)), where y = 0.7978845608 (x + 0.044715 x³).
    """
    factor = -2 * 0.7978845608
    y = xp.square(x)
    y *= factor * 0.044715
    y += factor
    y *= x  # now −2y
    xp.exp(y, out=y)
    y += 1
    x /= y
    return x


def in_heads(x, count):
    """(count · tokens, width) as (count, heads, tokens, width / heads)."""
    return x.reshape(count, -1, HEADS, WIDTH // HEADS).swapaxes(1, 2)


def layer(xp, x, w, b, count):
    """The layer's output for the tokens of `count` sequences, (count · tokens, width)."""
    # A query and a context are smaller than their scores: they are scaled, and divided by sums.
    query = in_heads((x @ w["query"] + b["query"]) / (WIDTH // HEADS) ** 0.5, count)
    key = in_heads(x @ w["key"] + b["key"], count)
    value = in_heads(x @ w["value"] + b["value"], count)
    weights = exponentials(xp, query @ key.swapaxes(-1, -2))
    context = xp.matmul(weights, value)
    context /= weights.sum(axis=-1, keepdims=True)
    context = context.swapaxes(1, 2).reshape(x.shape)
    x = normalized(x + xp.dot(context, w["out"]) + b["out"])
    inner = gelu(xp, xp.matmul(x, w["up"]) + b["up"])
    return normalized(x + inner @ w["down"] + b["down"])


def combined(weights, rows):
    """The sum of rows, each times its weight."""
    return (weights[:, None] * rows).sum(axis=0)


def one_token(xp, x, at, w, b):
    """The same for one token of one sequence x, vector by vector: no key or value is ever made.

    q · (Kᵀ x + k) = (K q) · x + q · k, whose last term softmax does not see; and what values sum
    up to, is the value of what the tokens sum up to.
    """
    context = []
    for start in range(0, WIDTH, WIDTH // HEADS):
        head = slice(start, start + WIDTH // HEADS)
        query = combined(x[at], w["query"][:, head]) + b["query"][head]
        direction = combined(query, w["key"][:, head].T)
        weights = exponentials(xp, combined(direction, x.T) / (WIDTH // HEADS) ** 0.5)
        seen = combined(weights, x) / weights.sum()
        context.append(combined(seen, w["value"][:, head]) + b["value"][head])
    mixed = combined(xp.concatenate(context), w["out"]) + b["out"]
    y = normalized(x[at] + mixed)
    inner = gelu(xp, combined(y, w["up"]) + b["up"])
    return normalized(y + combined(inner, w["down"]) + b["down"])


def report(xp, options, hidden, x, w, b):
    """Print how far a few tokens are from float64, and their least cosine similarity."""
    checked = np.random.default_rng(options.seed).integers(0, len(x), options.checked)
    length = options.length
    x, w, b = x.astype(xp.float64), double(xp, w), double(xp, b)
    wanted = []
    for token in checked.tolist():
        first = token - token % length
        wanted.append(one_token(xp, x[first : first + length], token - first, w, b))
    wanted, found = xp.stack(wanted), hidden[xp.asarray(checked)].astype(xp.float64)
    off = abs(found - wanted)
    norms = xp.linalg.norm(found, axis=1) * xp.linalg.norm(wanted, axis=1)
    cosine = (found * wanted).sum(axis=1) / norms
    print(f"tokens             {len(x)} in {options.size} sequences")
    print(f"compared           {options.checked} tokens")
    print(f"largest deviation  {float(off.max()):.1e}")
    print(f"mean deviation     {float(off.mean()):.1e}")
    print(f"cosine similarity  {float(cosine.min()):.9f}")


def parsed(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=16, help="number of sequences")
    parser.add_argument("--length", type=int, default=128, help="tokens of a sequence")
    parser.add_argument("--checked", type=int, default=16, help="tokens also done in float64")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gpu", action="store_true", help="use CuPy in place of NumPy")
    return parser.parse_args(arguments)


def problem(xp, options):
    """The embedded tokens, matrices and biases."""
    rng = np.random.default_rng(options.seed)
    words = 0.04 * rng.standard_normal((WORDS, WIDTH))
    places = 0.02 * rng.standard_normal((options.length, WIDTH))
    text = rng.integers(0, WORDS, (options.size, options.length))
    tokens = (words[text] + places).reshape(-1, WIDTH)
    return normalized(xp.asarray(tokens, xp.float32)), *parameters(xp, rng)


def work(xp, options, embedded, w, b):
    return (layer(xp, embedded, w, b, options.size),)


if __name__ == "__main__":
    options = parsed()
    xp = importlib.import_module("cupy" if options.gpu else "numpy")

    embedded, w, b = problem(xp, options)
    (hidden,) = work(xp, options, embedded, w, b)
    report(xp, options, hidden, embedded, w, b)
