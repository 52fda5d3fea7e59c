"""A transformer block with random weights tells which of eight languages a text is of."""

import argparse
import importlib

import numpy as np


def texts(count, length, letters, rng):
    """Texts of eight Markov chains, which differ in what follows a letter, and their languages."""
    habits = rng.dirichlet(np.full(letters, 0.3), size=(8, letters))
    language = rng.integers(0, 8, count)
    text = np.empty((count, length), int)
    text[:, 0] = rng.integers(0, letters, count)
    cumulated = habits.cumsum(axis=2)
    for i in range(1, length):
        chances = cumulated[language, text[:, i - 1]]
        text[:, i] = np.minimum((rng.random((count, 1)) > chances).sum(axis=1), letters - 1)
    return text, language


def weights(xp, letters, width, rng):
    """Random matrices of every layer, scaled so that activations keep their size."""
    shapes = {
        "embed": (letters, width),
        **dict.fromkeys(("query", "key", "value", "out"), (width, width)),
        **dict.fromkeys(("gate", "up"), (width, 2 * width)),
        "down": (2 * width, width),
        "head": (width, 2 * width),
    }
    return {
        name: xp.asarray(rng.standard_normal((fan_in, fan_out)) / np.sqrt(fan_in))
        for name, (fan_in, fan_out) in shapes.items()
    }


def normalized(xp, x):
    """Every token scaled to a root mean square of one."""
    return x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def softmax(xp, x):
    shifted = xp.exp(x - x.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def in_heads(x, heads):
    """(texts, tokens, width) as (texts, heads, tokens, width / heads)."""
    count, length, width = x.shape
    return x.reshape(count, length, heads, width // heads).swapaxes(1, 2)


def block(xp, one_hot, w, heads):
    """The block's output for texts (count, length, letters): (count, length, width)."""
    x = one_hot @ w["embed"]
    # Each token also sees the one before it: half of what it is.
    x[:, 1:] += 0.5 * x[:, :-1]

    y = normalized(xp, x)
    query, key, value = y @ w["query"], y @ w["key"], y @ w["value"]
    query, key, value = (in_heads(part, heads) for part in (query, key, value))
    scores = query @ key.swapaxes(-1, -2) / query.shape[-1] ** 0.5
    context = softmax(xp, scores) @ value
    x = x + xp.matmul(context.swapaxes(1, 2).reshape(x.shape), w["out"])

    y = normalized(xp, x)
    gate = xp.dot(y, w["gate"])
    inner = gate / (1 + xp.exp(-gate)) * xp.dot(y, w["up"])
    return x + inner @ w["down"]


def features(xp, hidden, w):
    """A text's features: the mean over its tokens of a last layer."""
    return xp.tanh(normalized(xp, hidden) @ w["head"]).mean(axis=1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=512, help="number of texts, half to learn from")
    parser.add_argument("--length", type=int, default=64, help="letters of a text")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gpu", action="store_true", help="use CuPy in place of NumPy")
    options = parser.parse_args()
    xp = importlib.import_module("cupy" if options.gpu else "numpy")

    rng = np.random.default_rng(options.seed)
    text, language = texts(options.size, options.length, 32, rng)
    w = weights(xp, 32, options.width, rng)
    one_hot = xp.asarray(np.eye(32)[text])
    remembered = features(xp, block(xp, one_hot, w, heads=4), w)

    known, language = options.size // 2, xp.asarray(language)
    centre = remembered[:known].mean(axis=0)
    spread = xp.cov(remembered[:known], rowvar=False) + 1e-3 * xp.eye(remembered.shape[1])
    means = xp.stack([remembered[:known][language[:known] == i].mean(axis=0) for i in range(8)])
    directions = xp.linalg.solve(spread, (means - centre).T)
    logits = (remembered[known:] - centre) @ directions
    truth = language[known:]
    print(f"texts               {options.size}, {options.length} letters each")
    print(f"accuracy            {float(xp.mean(logits.argmax(axis=1) == truth)):.4f}")
    print(f"mean margin         {float(xp.mean(xp.ptp(logits, axis=1))):.6f}")
