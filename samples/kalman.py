"""A Kalman filter and smoother follow a damped system of many coupled oscillators."""

import argparse
import importlib

import numpy as np


def normal(xp, rng, *shape):
    return xp.asarray(rng.standard_normal(shape))


def system(xp, states, seen, rng):
    """Motion F, its noise Q, observation H and its noise R of a random stable system."""
    basis, _ = xp.linalg.qr(normal(xp, rng, states, states))
    turn = np.zeros((states, states))
    for i in range(0, states - 1, 2):
        angle = rng.uniform(0.05, 0.6)
        turn[i : i + 2, i : i + 2] = [
            [np.cos(angle), -np.sin(angle)],
            [np.sin(angle), np.cos(angle)],
        ]
    motion = 0.98 * (basis @ xp.asarray(turn) @ basis.T)
    shaken = normal(xp, rng, states, states) / states**0.5
    motion_noise = 0.02 * (shaken @ shaken.T) + 0.01 * xp.eye(states)
    sight = xp.matmul(normal(xp, rng, seen, states), basis) / states**0.5
    blurred = normal(xp, rng, seen, seen) / seen**0.5
    sight_noise = 0.1 * xp.dot(blurred, blurred.T) + 0.1 * xp.eye(seen)
    return motion, motion_noise, sight, sight_noise


def simulate(xp, motion, motion_noise, sight, sight_noise, steps, tracks, rng):
    """True states and observations of several independent tracks, step by step."""
    shake, blur = xp.linalg.cholesky(motion_noise), xp.linalg.cholesky(sight_noise)
    x = normal(xp, rng, len(motion), tracks)
    truth, observed = [], []
    for _ in range(steps):
        x = motion @ x + shake @ normal(xp, rng, *x.shape)
        truth.append(x)
        observed.append(sight @ x + blur @ normal(xp, rng, len(sight), tracks))
    return truth, observed


def run_filter(xp, motion, motion_noise, sight, sight_noise, observed):
    """Predicted and filtered means and covariances of every step, and the log-likelihood."""
    x = xp.zeros((len(motion), observed[0].shape[1]))
    p = xp.eye(len(motion))
    past, likelihood = [], 0.0
    for z in observed:
        ahead = motion @ x
        spread = motion @ p @ motion.T + motion_noise

        surprise = z - xp.dot(sight, ahead)
        gate = sight @ spread @ sight.T + sight_noise
        inverse = xp.linalg.inv(gate)
        gain = spread @ sight.T @ inverse

        x = ahead + gain @ surprise
        rest = xp.eye(len(motion)) - gain @ sight
        p = rest @ spread @ rest.T + gain @ sight_noise @ gain.T  # Joseph's form stays definite
        past.append((ahead, spread, x, p))

        weighed = xp.matmul(inverse, surprise)
        likelihood -= 0.5 * (xp.sum(surprise * weighed) + z.shape[1] * xp.linalg.slogdet(gate)[1])
    return past, likelihood


def smooth(xp, motion, past):
    """Means of every step given all observations, by Rauch, Tung and Striebel's recursion."""
    _, _, x, p = past[-1]
    means = [x]
    for (_, _, here, at), (ahead, spread, _, _) in zip(past[-2::-1], past[:0:-1], strict=True):
        back = at @ motion.T @ xp.linalg.inv(spread)
        x = here + back @ (x - ahead)
        p = at + back @ (p - spread) @ back.T
        means.append(x)
    return means[::-1], p


def miss(xp, means, truth):
    """Root mean square of what the means are off, by the covariance of their errors."""
    errors = xp.concatenate(means, axis=1) - xp.concatenate(truth, axis=1)
    scatter = errors @ errors.T / errors.shape[1]
    return xp.sqrt(xp.trace(scatter) / len(scatter))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=384, help="number of states, half of them seen")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--tracks", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gpu", action="store_true", help="use CuPy in place of NumPy")
    options = parser.parse_args()
    xp = importlib.import_module("cupy" if options.gpu else "numpy")

    rng = np.random.default_rng(options.seed)
    model = system(xp, options.size, options.size // 2, rng)
    truth, observed = simulate(xp, *model, options.steps, options.tracks, rng)
    past, likelihood = run_filter(xp, *model, observed)
    smoothed, first_spread = smooth(xp, model[0], past)

    filtered_miss = miss(xp, [x for _, _, x, _ in past], truth)
    smoothed_miss = miss(xp, smoothed, truth)
    print(f"states              {options.size}, {options.size // 2} seen")
    print(f"steps               {options.steps}, {options.tracks} tracks")
    print(f"log-likelihood      {float(likelihood):.4f}")
    print(f"first spread        {float(xp.trace(first_spread)):.6f}")
    print(f"miss, filtered      {float(filtered_miss):.6f}")
    print(f"miss, smoothed      {float(smoothed_miss):.6f}")
