"""A trained multilayer perceptron reads handwritten digits, each from nine shifted views."""

import argparse
import importlib
import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier


def shifted(images):
    """Every image moved by up to one pixel, in nine ways: (9 · count, 8, 8)."""
    shifts = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)]
    return np.concatenate([np.roll(images, shift, axis=(1, 2)) for shift in shifts])


def forward(xp, x, weights, biases):
    """Logits (count, 10) of the images in the rows of x."""
    w1, w2, w3 = weights
    b1, b2, b3 = biases
    h = xp.maximum(x @ w1 + b1, 0.0)
    g = xp.maximum(h @ w2 + b2, 0.0)
    return g @ w3 + b3


def log_softmax(xp, logits):
    """Logarithm of the probabilities that the logits stand for, row by row."""
    centred = logits - logits.max(axis=1, keepdims=True)
    return centred - xp.log(xp.exp(centred).sum(axis=1, keepdims=True))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1797, help="number of digits used, of 1797")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gpu", action="store_true", help="use CuPy in place of NumPy")
    options = parser.parse_args()
    xp = importlib.import_module("cupy" if options.gpu else "numpy")

    digits = load_digits()
    order = np.random.default_rng(options.seed).permutation(len(digits.images))[: options.size]
    images, labels = digits.images[order] / 16.0, digits.target[order]
    held_out = 2 * len(images) // 3

    training = shifted(images[held_out:])
    model = MLPClassifier((1024, 512), max_iter=3, random_state=options.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(training.reshape(len(training), 64), np.tile(labels[held_out:], 9))

    views = shifted(images[:held_out])
    weights, biases = ([xp.asarray(x) for x in part] for part in (model.coefs_, model.intercepts_))
    logits = forward(xp, xp.asarray(views.reshape(len(views), 64)), weights, biases)
    votes = logits.reshape(9, held_out, 10).mean(axis=0)
    log_probabilities = log_softmax(xp, votes)

    truth = xp.asarray(labels[:held_out])
    print(f"digits trained on   {len(images) - held_out}, each in 9 views")
    print(f"digits read         {held_out}, each in 9 views")
    print(f"accuracy            {float((votes.argmax(axis=1) == truth).mean()):.4f}")
    print(f"mean cross-entropy  {-float(log_probabilities[xp.arange(held_out), truth].mean()):.6f}")
