"""A perceptron of three layers, its weights random, reads a batch of random inputs."""

import argparse
import importlib
import itertools

import numpy as np


def parameters(xp, widths, rng):
    """Weights and biases between layers of these widths, float32; activations keep their size."""
    weights = [
        xp.asarray(rng.standard_normal(shape, np.float32)) * (2.0 / shape[0]) ** 0.5
        for shape in itertools.pairwise(widths)
    ]
    return weights, [xp.asarray(0.1 * rng.standard_normal(w), xp.float32) for w in widths[1:]]


def forward(xp, x, weights, biases):
    """Logits (count, classes) of the inputs in the rows of x."""
    h = xp.maximum(x @ weights[0] + biases[0], 0.0)
    g = xp.maximum(xp.matmul(h, weights[1]) + biases[1], 0.0)
    return xp.dot(g, weights[2]) + biases[2]


def one_input(xp, x, weights, biases):
    """The same of one input, vector by vector."""
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        x = (x[:, None] * weight).sum(axis=0) + bias
        x = xp.maximum(x, 0.0) if layer < 2 else x
    return x


def parsed(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=2048, help="number of inputs")
    parser.add_argument("--width", type=int, default=1024, help="of the inputs and inner layers")
    parser.add_argument("--classes", type=int, default=256)
    parser.add_argument("--checked", type=int, default=16, help="inputs also done in float64")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gpu", action="store_true", help="use CuPy in place of NumPy")
    return parser.parse_args(arguments)


def problem(xp, options):
    """The inputs, the weights and the biases."""
    rng = np.random.default_rng(options.seed)
    x = xp.asarray(rng.standard_normal((options.size, options.width), np.float32))
    widths = (options.width, options.width, options.width, options.classes)
    return x, *parameters(xp, widths, rng)


def work(xp, options, x, weights, biases):
    return (forward(xp, x, weights, biases),)


def report(xp, options, logits, x, weights, biases):
    """Print how far the logits of some inputs are from float64, and how often the largest agree."""
    count = min(options.checked, options.size)
    x = x[:count].astype(xp.float64)
    weights, biases = ([w.astype(xp.float64) for w in part] for part in (weights, biases))
    wanted = xp.stack([one_input(xp, x[i], weights, biases) for i in range(count)])
    found = logits[:count]
    agree = (found.argmax(axis=1) == wanted.argmax(axis=1)).mean()
    print(f"inputs          {options.size}, {options.width} wide")
    print(f"same class      {float(agree):.4f} of {count} that were compared")
    print(f"relative error  {float(xp.linalg.norm(found - wanted) / xp.linalg.norm(wanted)):.1e}")


if __name__ == "__main__":
    options = parsed()
    xp = importlib.import_module("cupy" if options.gpu else "numpy")

    x, weights, biases = problem(xp, options)
    (logits,) = work(xp, options, x, weights, biases)
    report(xp, options, logits, x, weights, biases)
