"""A Kalman filter and smoother follow a damped system of many coupled oscillators."""

import argparse

import numpy as np


def system(states, seen, rng):
    """Motion F, its noise Q, observation H and its noise R of a random stable system."""
    basis, _ = np.linalg.qr(rng.standard_normal((states, states)))
    turn = np.zeros((states, states))
    for i in range(0, states - 1, 2):
        angle = rng.uniform(0.05, 0.6)
        turn[i : i + 2, i : i + 2] = [
            [np.cos(angle), -np.sin(angle)],
            [np.sin(angle), np.cos(angle)],
        ]
    motion = 0.98 * (basis @ turn @ basis.T)
    shaken = rng.standard_normal((states, states)) / np.sqrt(states)
    motion_noise = 0.02 * (shaken @ shaken.T) + 0.01 * np.eye(states)
    sight = np.matmul(rng.standard_normal((seen, states)), basis) / np.sqrt(states)
    blurred = rng.standard_normal((seen, seen)) / np.sqrt(seen)
    sight_noise = 0.1 * np.dot(blurred, blurred.T) + 0.1 * np.eye(seen)
    return motion, motion_noise, sight, sight_noise


def simulate(motion, motion_noise, sight, sight_noise, steps, tracks, rng):
    """True states and observations of several independent tracks, step by step."""
    shake, blur = np.linalg.cholesky(motion_noise), np.linalg.cholesky(sight_noise)
    x = rng.standard_normal((len(motion), tracks))
    truth, observed = [], []
    for _ in range(steps):
        x = motion @ x + shake @ rng.standard_normal(x.shape)
        truth.append(x)
        observed.append(sight @ x + blur @ rng.standard_normal((len(sight), tracks)))
    return truth, observed


def run_filter(motion, motion_noise, sight, sight_noise, observed):
    """Predicted and filtered means and covariances of every step, and the log-likelihood."""
    x = np.zeros((len(motion), observed[0].shape[1]))
    p = np.eye(len(motion))
    past, likelihood = [], 0.0
    for z in observed:
        ahead = motion @ x
        spread = motion @ p @ motion.T + motion_noise

        surprise = z - np.dot(sight, ahead)
        gate = sight @ spread @ sight.T + sight_noise
        inverse = np.linalg.inv(gate)
        gain = spread @ sight.T @ inverse

        x = ahead + gain @ surprise
        rest = np.eye(len(motion)) - gain @ sight
        p = rest @ spread @ rest.T + gain @ sight_noise @ gain.T  # Joseph's form stays definite
        past.append((ahead, spread, x, p))

        weighed = np.matmul(inverse, surprise)
        likelihood -= 0.5 * (np.sum(surprise * weighed) + z.shape[1] * np.linalg.slogdet(gate)[1])
    return past, likelihood


def smooth(motion, past):
    """Means of every step given all observations, by Rauch, Tung and Striebel's recursion."""
    _, _, x, p = past[-1]
    means = [x]
    for (_, _, here, at), (ahead, spread, _, _) in zip(past[-2::-1], past[:0:-1], strict=True):
        back = at @ motion.T @ np.linalg.inv(spread)
        x = here + back @ (x - ahead)
        p = at + back @ (p - spread) @ back.T
        means.append(x)
    return means[::-1], p


def miss(means, truth):
    """Root mean square of what the means are off, by the covariance of their errors."""
    errors = np.concatenate(means, axis=1) - np.concatenate(truth, axis=1)
    scatter = errors @ errors.T / errors.shape[1]
    return np.sqrt(np.trace(scatter) / len(scatter))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=384, help="number of states, half of them seen")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--tracks", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    rng = np.random.default_rng(options.seed)
    model = system(options.size, options.size // 2, rng)
    truth, observed = simulate(*model, options.steps, options.tracks, rng)
    past, likelihood = run_filter(*model, observed)
    smoothed, first_spread = smooth(model[0], past)

    filtered_miss = miss([x for _, _, x, _ in past], truth)
    smoothed_miss = miss(smoothed, truth)
    print(f"states              {options.size}, {options.size // 2} seen")
    print(f"steps               {options.steps}, {options.tracks} tracks")
    print(f"log-likelihood      {likelihood:.4f}")
    print(f"first spread        {np.trace(first_spread):.6f}")
    print(f"miss, filtered      {filtered_miss:.6f}")
    print(f"miss, smoothed      {smoothed_miss:.6f}")
