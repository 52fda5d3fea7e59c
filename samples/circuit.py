"""A random quantum circuit, its gates fused into unitaries of many qubits."""

import argparse
import importlib

import numpy as np


def random_gate(rng):
    """A unitary of two qubits, drawn uniformly."""
    q, r = np.linalg.qr(rng.standard_normal((4, 4)) + 1j * rng.standard_normal((4, 4)))
    return q * (np.diagonal(r) / abs(np.diagonal(r)))


def bricks(xp, qubits, rows, rng):
    """Gates on neighbours, row upon row, as (first qubit, unitary)."""
    places = [at for row in range(rows) for at in range(row % 2, qubits - 1, 2)]
    return [(at, xp.asarray(random_gate(rng))) for at in places]


def gate_applied(state, at, gate):
    """The state after a gate on the qubits `at` and `at + 1`, by sums of its amplitudes alone."""
    parts = state.reshape(2**at, 4, -1)
    after = sum(gate[:, i, None] * parts[:, i, None] for i in range(4))
    return after.reshape(state.shape)


def fused(xp, gates, qubits):
    """The unitary of all gates on the first qubits of the state, (2^qubits, 2^qubits)."""
    unitary = xp.eye(2**qubits, dtype=xp.complex128)
    for at, gate in gates:
        unitary = gate_applied(unitary, at, gate)
    return unitary


def turned(state, by):
    """The state with its first qubits moved behind the last."""
    return state.reshape(2**by, -1).T.reshape(state.shape)


def run(xp, unitaries, qubits, by):
    """|0…0⟩ after every unitary on the qubits that come first then, one row a state of these."""
    width = len(unitaries[0])
    state = xp.zeros((width, 2**qubits // width), unitaries[0].dtype)
    state[0, 0] = 1
    for unitary in unitaries:
        state = turned(unitary @ state, by)
    return state


def run_gate_by_gate(xp, layers, qubits, by):
    """The same in complex128, no gates fused."""
    state = xp.zeros(2**qubits, xp.complex128)
    state[0] = 1.0
    for gates in layers:
        for at, gate in gates:
            state = gate_applied(state, at, gate)
        state = turned(state, by)
    return state


def report(xp, options, state, unitaries, layers):
    """Print the norm of the state, and how near it is to that of the gates one by one."""
    wanted = run_gate_by_gate(xp, layers, options.size, step(options))
    found = state.ravel().astype(xp.complex128)
    overlap = abs((wanted.conj() * found).sum())
    print(f"qubits          {options.size}, {options.fused} of them in a unitary")
    print(f"gates           {sum(map(len, layers))}, fused into {len(unitaries)} unitaries")
    print(f"norm            {float(xp.linalg.norm(found)):.9f}")
    print(f"fidelity        {float(overlap**2):.9f}")
    print(f"relative error  {float(xp.linalg.norm(found - wanted)):.1e}")


def parsed(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=19, help="number of qubits")
    parser.add_argument("--fused", type=int, default=8, help="qubits of a fused unitary")
    parser.add_argument("--depth", type=int, default=12, help="number of fused unitaries")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gpu", action="store_true", help="use CuPy in place of NumPy")
    options = parser.parse_args(arguments)
    if options.fused > options.size:
        parser.error("--fused must be at most --size")
    return options


def problem(xp, options):
    """The unitaries in complex64, and the gates that they were fused from."""
    rng = np.random.default_rng(options.seed)
    layers = [bricks(xp, options.fused, 2, rng) for _ in range(options.depth)]
    unitaries = [fused(xp, gates, options.fused).astype(xp.complex64) for gates in layers]
    return unitaries, layers


def work(xp, options, unitaries, layers):
    return (run(xp, unitaries, options.size, step(options)),)


def step(options):
    """By how many qubits a unitary is beside the one before: they share half of them."""
    return options.fused // 2


if __name__ == "__main__":
    options = parsed()
    xp = importlib.import_module("cupy" if options.gpu else "numpy")

    unitaries, layers = problem(xp, options)
    (state,) = work(xp, options, unitaries, layers)
    report(xp, options, state, unitaries, layers)
