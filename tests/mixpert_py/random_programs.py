"""Programs by chance, in which products' results go every way that a value can go.

All arrays are 3 × 3, so that every statement fits any variable: v0 … v5 are arrays, s is a list of
arrays, d a dictionary of arrays, o and p are objects.
"""

from random import Random

HEAD = """\
import numpy as np
from contextlib import suppress
from dataclasses import dataclass

rng = np.random.default_rng(0)
v0, v1, v2, v3, v4, v5 = (rng.standard_normal((3, 3)) for _ in range(6))
s = [v0, v1.copy()]
d = {"k": v2, "l": v3.T}


class Layer:
    shared = []

    def __init__(self, w):
        self.w = w
        self.seen = []

    def __call__(self, x):
        self.y = np.tanh(x @ self.w)
        self.seen.append(self.y)
        return self.y

    def __add__(self, other):
        return Layer(self.w @ other.w)

    def update(self, g, rate=0.1):
        self.w -= rate * (g @ self.y)
        self.shared.append(g)

    @property
    def gram(self):
        return self.w.T @ self.w

    @staticmethod
    def mixed(one, other=v1):
        return one @ other

    @classmethod
    def made(cls, w):
        return cls(w.T)


class Deep(Layer):
    def __call__(self, x):
        return super().__call__(x) + self.best()

    def best(self):
        return max(self.seen, key=np.sum)


@dataclass
class Pair:
    first: object
    second: object = None


o, p = Layer(v4), Deep(v5)
q = Pair(v0, second=v1)


def scaled(x, by=2):
    return x / (by + np.abs(x).max())


def view(x):
    return x.T[::-1]


def put(x, y):
    x[1:] = y[:2]


def both(x, y):
    return y, x @ y


def several(*xs, **named):
    return [x @ named["to"] for x in xs]


def parts(x):
    for row in (x, x @ x):
        yield row


def counted(step):
    total = step()

    def again(x):
        nonlocal total
        total = total + step() @ x
        return total

    return again


def remember(x):
    global v5
    v5 = x @ x
    s.append(x)


def deeper(x, n):
    return deeper(scaled(x @ v0), n - 1) if n else x


def wrapped(f):
    def g(*args):
        return scaled(f(*args))

    return g


@wrapped
def squared(x):
    return x @ x

"""

# {v}: a variable that is assigned or changed; {x}, {y}: arrays; {i}: a number, of an element.
SIMPLE = [
    "{v} = {x} @ {y}",
    "{v} = np.dot({x}, {y})",
    "{v} = {x}.dot({y}) + {x}",
    "{v} = np.einsum('ij,jk->ik', {x}, {y})",
    "{v} = np.linalg.multi_dot([{x}, {y}, {x}])",
    "{v} = np.tensordot({x}, {y}, axes=1) - np.inner({x}, {y})",
    "np.matmul({x}, {y}, out={v})",
    "np.dot({x}, {y}.copy(), {v}) if {v}.flags.c_contiguous else None",
    "{v} @= {y}",
    "{v}[:2] = {x}[1:] @ {y}",
    "{v} = scaled({x})",
    "{v} = view({x})",
    "{v} = {x}.T",
    "{v} = {x}[::-1]",
    "{v} = {x}.reshape(9)[::-1].reshape(3, 3)",
    "{v} = {x}.copy()",
    "{v} = np.where({x} > 0, {y}, {x})",
    "{v} = np.stack([{x}[0], {y}[1], {x}[2]])",
    "{v} = np.zeros_like({x}) + {i}",
    "{v} = {x}[{y}.argmax(axis=0)]",
    "{v} = {x} if {y}.sum() > 0 else {y}",
    "{v} = np.linalg.qr({x})[0]",
    "{v}, _ = np.linalg.qr({x} + {y})",
    "{v} = np.concatenate([{x}, {y}], axis=1)[:, :3]",
    "{v}, {x} = {x}, {y}",
    "{v}, *_ = np.vsplit(np.vstack([{x}, {y}]), 2)",
    "{v} += {x}",
    "{v} -= 0.1 * {x}",
    "{v}[{i}] *= {x}[1]",
    "{v}.T[{i}] = {x}[{i}]",
    "{v}.flat[{i}] = {x}[1, 1]",
    "np.copyto({v}, {x})",
    "np.add.at({v}, [0, {i}], {x}[:2])",
    "np.fill_diagonal({v}, {x}[0])",
    "np.multiply({x}, {y}, out={v})",
    "put({v}, {x})",
    "put({v}[::-1], {x} @ {y})",
    "{v}, {x} = both({x}, {y})",
    "s.append({x})",
    "s.append({x} @ {y})",
    "s.extend([{x}, {y}])",
    "s.insert(0, {x})",
    "s += [{x}]",
    "s[{i} % len(s)] = {x}",
    "s[0] @= {x}",
    "s[-1][1:] += {x}[:2]",
    "s = [x @ {y} for x in s[:4]]",
    "s = s[::-1][:3]",
    "s = [*s[:2], {x}]",
    "s = several({x}, *s[:2], to={y})",
    "s = sorted(s, key=lambda x: (x @ {y}).sum())",
    "s[:] = list(parts({x})) + s[:1]",
    "{v} = s[{i} % len(s)]",
    "{v} = s.pop() if len(s) > 1 else s[0]",
    "{v} = sum(s)",
    "{v} = next(x for x in s if x is not None)",
    "{v} = max(s, key=np.sum)",
    "{v} = list(map(lambda x: x @ {x}, s[:3]))[0]",
    "{v} = list(map(scaled, s[:3]))[-1]",
    "{v} = np.mean(s, axis=0)",
    "{v} = np.array(s[:1])[0]",
    'd["k"] = {x}',
    'd["l"] = {x} @ d["k"]',
    "d.update(k={x})",
    "d = {{**d, 'l': {x}}}",
    "d = {{name: x @ {x} for name, x in d.items()}}",
    "d = dict(k={x}, l={y})",
    "d.setdefault('m{i}', {x})[0] = {y}[0]",
    '{v} = d["k"]',
    '{v} = d.get("l")',
    "{v} = [*d.values()][0]",
    "{v} = o({x})",
    "{v} = p({x})",
    "o.update({x}) if hasattr(o, 'y') else o({x})",
    "o.w = {x}",
    "p.w @= {x}",
    "p.w[:] = {x}",
    "{v} = o.gram",
    "{v} = o.w",
    "{v} = p.seen[-1] if p.seen else {x}",
    "{v} = Layer.shared[0] if Layer.shared else {x}",
    "{v} = (o + p).w",
    "{v} = o.mixed({x})",
    "o = Layer.made({x})",
    "o, p = p, o",
    "o = Pair(o, p).first",
    "q.second = {x}",
    "q = Pair(q.second, {x})",
    "{v} = q.first @ {x}",
    "{v} = getattr(q, 'first')",
    "setattr(q, 'first', {x} @ {y})",
    "{v} = counted(lambda: {x})({y})",
    "remember({x})",
    "{v} = deeper({x}, 2)",
    "{v} = squared({x})",
    "{v} = [part for part in parts({x})][-1]",
    "{v} = (lambda a, b={y}: a @ b)({x})",
    "{v} = (t := {x} @ {y}) + t",
    "{v} = np.apply_along_axis(lambda row: row @ {y}, 1, {x})",
    "{v} = {x}.astype(np.float32).astype(float)",
    "{v} = np.asarray({x})",
    "{v} = np.broadcast_to({x}[0], (3, 3)).copy()",
    "{v} = np.linalg.solve({x} @ {x}.T + 9 * np.eye(3), {y})",
    "{v} = {x} * float({x}[0] @ {y}[0])",
    "{v} = next(iter(zip(s, [{x}])))[1]",
    "{v} = [x for _, x in enumerate(s)][-1]",
    "del s[1:]",
]
# Every line is followed by statements of its own.
BLOCKS = [
    ["if {x}[0, 0] > 0:", "else:"],
    ["if {i} > 1:"],
    ["for _ in range(3):"],
    ["for x in s[:3]:", "else:"],
    ["for i, (x, y) in enumerate(zip(s[:2], list(d.values()))):"],
    ["try:", "except ValueError:"],
    ["try:", "finally:"],
    ["with suppress(ValueError):"],
    ["for {v} in parts({x}):"],
]


def random_program(seed: int) -> bytes:
    """A dozen statements, some in loops and branches; every other time all in a function."""
    chance = Random(seed)
    body = _statements(chance, 12, 0)
    if seed % 2:
        names = "v0, v1, v2, v3, v4, v5"
        inside = ["global s, d, o, p, q", *body]
        body = [f"def main({names}):", *(f"    {line}" for line in inside), f"main({names})"]
    return "\n".join([HEAD, *body, ""]).encode()


def _statements(chance: Random, count: int, depth: int) -> list[str]:
    lines = []
    for _ in range(count):
        if depth < 2 and chance.random() < 0.2:
            for head in chance.choice(BLOCKS):
                inside = _statements(chance, chance.randrange(1, 4), depth + 1)
                lines += [_filled(chance, head), *(f"    {line}" for line in inside)]
        else:
            lines.append(_filled(chance, chance.choice(SIMPLE)))
    return lines


def _filled(chance: Random, template: str) -> str:
    v, x, y = (f"v{chance.randrange(6)}" for _ in range(3))
    return template.format(v=v, x=x, y=y, i=chance.randrange(3))
