"""Programs and the edges between their products, drawn by hand.

Each program has a headline: its name, and its edges, `x -> y`. A product is named by the comment at
the end of its line.
"""

import re

from mixpert_py.passes.pipeline import analyze

PROGRAMS = """
## chain: p -> q, q -> r
c = a @ b       # p
d = c @ b       # q
e = d @ b       # r
## in-place-in-a-loop: p -> p, q -> r, r -> t, t -> s
x = np.zeros((2, 3, 3))
for i in range(3):
    a @= b      # p
c = b @ b       # q
x[0] @= c       # r
z.y @= x @ b    # s t
## overwritten:
c = a @ b       # p
c = a + 1
d = c @ b       # q
## shape-is-no-value:
c = a @ b       # p
d = np.zeros(c.shape) @ np.ones(len(c))      # q
e = np.zeros_like(c) @ b                     # r
## index-is-a-value: p -> q
c = a @ b       # p
i = c.argmax()
d = a[i] @ b    # q
## branch: p -> r, q -> r
if x:
    c = a @ b   # p
else:
    c = b @ a   # q
d = c @ b       # r
## loop-of-two: p -> q, q -> p
x = a
while True:
    y = x @ b   # p
    x = y @ b   # q
## loop-continue: p -> p
x = a
for i in range(3):
    y = x @ b   # p
    if i:
        x = y
        continue
    x = a
## tuple: p -> q
c, d = a @ b, a     # p
e = c @ b           # q
f = d @ b           # r
## walrus: p -> q
if (c := a @ b).any():  # p
    d = c @ b           # q
## dictionary: p -> q
p = {"w": a @ b, "v": a}    # p
c = p["w"] @ b              # q
d = p["v"] @ b              # r
## list-append: p -> q
s = []
s.append(a @ b)     # p
c = s[0] @ b        # q
## comprehension: p -> q
s = [x @ b for x in y]          # p
t = [x @ b for x in s]          # q
## zip: p -> q
s = [a @ b]                     # p
for x, y in zip(s, t):
    c = x @ b                   # q
    d = y @ b                   # r
## zip-of-written-lists: p -> r, q -> s
u, v = a @ b, b @ a             # p q
x, y = np.zeros(3), np.zeros(3)
for z, w in zip([x, y], (u, v)):
    w = w * 2
    z += w
c = x @ b                       # r
d = y @ b                       # s
## written-list: p -> r, q -> s
x, y = a @ b, b @ a             # p q
for z in [x, y]:
    np.clip(z, -5, 5, out=z)
c = x @ b                       # r
d = y @ b                       # s
## enumerate: p -> q
for i, x in enumerate([a @ b]):     # p
    c = x @ i                       # q
    d = i @ b                       # r
## in-place-afterwards:
d = c @ b           # q
c += a @ b          # p
## element-store: p -> q
c = np.zeros(3)
c[1:] = a @ b       # p
d = c @ b           # q
## through-a-view: p -> q
c = np.zeros(3)
panel = c[1:2]
panel -= a @ b      # p
d = c @ b           # q
## through-a-reshaped-view: p -> q
c = np.zeros(3)
v = c.reshape(3, 1).T
v[:] = a @ b        # p
d = c @ b           # q
## copy-is-no-view:
c = np.zeros(3)
v = c.copy()
v += a @ b          # p
d = c @ b           # q
## alias: p -> q
c = np.zeros(3)
v = c
v *= a @ b          # p
d = c @ b           # q
## out: p -> q
c = np.zeros(3)
np.matmul(a, b, out=c)  # p
d = c @ b               # q
## unknown-procedure: p -> q
c = np.zeros(3)
p = a @ b               # p
kernel(p, c)
d = c @ b               # q
## print-changes-nothing:
p = a @ b               # p
print(p, a)
d = a @ b               # q
## functions: p -> q
def f(x): return x @ b      # p
def g(x): return x @ b      # q
y = g(f(a))
## keyword-argument: r -> q
def f(x, y): return x @ b, y @ a    # p q
f(y=a @ a, x=b)                     # r
## default-argument: p -> q
def f(x=a @ b): return x @ b        # p q
f()
## star-arguments: q -> p
def f(*xs): return [x @ b for x in xs]  # p
f(a, a @ a)                             # q
## starred-call: q -> p
def f(x, y): return y @ b       # p
f(*[a, a @ a])                  # q
## keyword-arguments: q -> p
def f(**k): return k["x"] @ b   # p
f(x=a @ a)                      # q
## recursion: p -> p, p -> q
def f(x, n): return f(x @ b, n - 1) if n else x     # p
c = f(a, 3) @ b                                     # q
## closure: p -> q
def outer(x):
    y = x @ b                   # p
    def inner(z): return y @ z  # q
    return inner
outer(a)(b)
## nonlocal: p -> q
def outer(x):
    y = x
    def inner():
        nonlocal y
        y = x @ b               # p
    inner()
    return y @ b                # q
outer(a)
## global: p -> q
def f():
    global c
    c = a @ b                   # p
f()
d = c @ b                       # q
## lambda: p -> q
f = lambda x: x @ b             # p
c = f(a) @ b                    # q
## map: q -> p, p -> r, q -> r
c = list(map(lambda x: x @ b, [a @ a]))     # p q
d = c[0] @ b                                # r
## generator: p -> q
def f():
    yield a @ b                 # p
for c in f():
    d = c @ b                   # q
## decorated: q -> p
@cache
def f(x): return x @ b          # p
c = f(a @ a)                    # q
## async: p -> q
async def f(x): return x @ b    # p
async def g(): return await f(a) @ b    # q
## with: r -> s
with open(a @ b) as c:          # p
    d = c @ b                   # q
with lock(a @ a) as e:          # r
    f = e @ b                   # s
## try: p -> q
c = a
try:
    c = a @ b                   # p
    c = solve(b)
except ValueError:
    d = c @ b                   # q
## match: p -> q
match [a @ b]:                  # p
    case [c]:
        d = c @ b               # q
## attribute: p -> q
s.x = a @ b                     # p
c = s.x @ b                     # q
d = s.y @ b                     # r
## methods: p -> q
class Net:
    def __init__(self, w):
        self.w = w
    def forward(self, x):
        self.h = x @ self.w     # p
        return self.out()
    def out(self):
        return self.h @ self.w  # q
y = Net(b).forward(a)
## instances: p -> r
class Layer:
    def __init__(self, w): self.w = w
    def __call__(self, x):
        self.y = np.tanh(x)
        return self.y
one, two = Layer(a), Layer(b)
c = one(a @ b)                  # p
d = two.w @ b                   # q
e = one.y @ b                   # r
## dataclass: p -> q
@dataclass
class Pair:
    x: object
    y: object
s = Pair(a @ b, y=a)            # p
c = s.x @ b                     # q
d = s.y @ b                     # r
## property: p -> q
class C:
    def __init__(self, x): self.x = x
    @property
    def gram(self): return self.x @ self.x.T    # p
c = C(a).gram @ b                               # q
## methods-of-one-name: p -> q, q -> r
class One:
    def __init__(self, w): self.w = w
    def forward(self, x): return x @ self.w     # p
class Two:
    def __init__(self, w): self.w = w
    def forward(self, x): return self.w @ x     # q
c = One(a).forward(b)
d = Two(a).forward(c) @ b                       # r
## partial: q -> p, p -> r
def f(x, y): return x @ y       # p
g = partial(f, a @ a)           # q
c = g(b) @ b                    # r
## vectorize: q -> p
def f(x): return x @ b          # p
g = np.vectorize(f)
c = g(a @ a)                    # q
## inherited: p -> q
class B:
    def set(self, x): self.x = x
class C(B):
    def get(self): return self.x @ b    # q
c = C()
c.set(a @ b)                            # p
c.get()
## class-method: p -> q
class C:
    def __init__(self, x): self.x = x
    @classmethod
    def made(cls, x): return cls(x.T)
c = C.made(a @ b).x @ b         # q p
## setattr: p -> q
class C: pass
c = C()
setattr(c, "x", a @ b)          # p
d = c.x @ b                     # q
## getattr: p -> q, p -> r
class C: pass
c = C()
c.x = np.zeros((3, 3))
view = getattr(c, "x")
view += a @ b                   # p
d = c.x @ b                     # q
e = getattr(c, a.name) @ b      # r
## drawn-by-chance: p -> r
rng = np.random.default_rng(0)
x, y = rng.standard_normal((3, 3)), rng.normal(size=(3, 3))
x -= a @ b                      # p
c = y @ b                       # q
d = x @ b                       # r
## lists-made-of-lists: p -> s, q -> t, r -> u
x, y, z = np.zeros(3), np.zeros(3), np.zeros(3)
s = ([x] * 2, [] + [y], [z].copy())
s[0][1][:] = a @ b              # p
s[1][0][:] = a @ a              # q
s[2][0][:] = b @ a              # r
c = x @ b                       # s
d = y @ b                       # t
e = z @ b                       # u
## places-in-a-list-that-change: p -> q, p -> r
s, t = [a, a], [a, a]
s[1] = t[1] = a @ b             # p
s.pop(0)
c = s[0] @ b                    # q
del t[0]
d = t[0] @ b                    # r
## positional-out: p -> q
c, p = np.zeros(3), a @ b       # p
np.add(p, a, c)
d = c @ b                       # q
np.copyto(c, a)
e = a @ b                       # r
## asserted:
c, x = a @ b, np.zeros((3, 3))  # p
np.testing.assert_array_less(x, c + 99)
d = x @ b                       # q
## strided: p -> q
x = np.zeros((3, 3))
np.lib.stride_tricks.as_strided(x, (3, 3), (24, 8))[:] = a @ b       # p
c = x @ b                                                   # q
## reduce: p -> p
from functools import reduce
c = reduce(lambda x, y: x @ y, [a, b, a])                   # p
## raise-after-a-change: p -> q
def f(x):
    x[:] = a @ b                # p
    raise ValueError
c = np.zeros(3)
try:
    f(c)
except ValueError:
    d = c @ b                   # q
## finally-after-return: p -> q
def f(x):
    try:
        return a
    finally:
        x[:] = a @ b            # p
c = np.zeros(3)
f(c)
d = c @ b                       # q
## generator-whose-operands-change: q -> p, r -> p
def f(x):
    for i in range(3):
        yield x @ b             # p
x = np.zeros(3)
for c in f(x):
    x += a @ b                  # q
y = np.zeros(3)
g = f(y)
y += a @ a                      # r
d = next(g)
## finally-after-except: p -> q
def f(x):
    try:
        solve()
    except ValueError:
        x = a @ b               # p
        return
    finally:
        c = x @ b               # q
f(a)
## class-attribute-until-the-instance-has-one: p -> q
class C:
    w = a @ b                   # p
    def get(self): return self.w @ b    # q
    def set(self): self.w = np.zeros(3)
## instance-of-the-module: p -> q
class C:
    def __init__(self): self.w = np.zeros(3)
    def set(self, x): self.w[:] = x @ b     # p
    def get(self): return self.w @ b        # q
c = C()
## decorated-class: p -> q
def with_weights(c):
    c.w = a @ b                 # p
    return c
@with_weights
class C:
    def get(self): return self.w @ b    # q
C().get()
## dataclass-with-a-base: r -> p, p -> s, q -> t
@dataclass
class B:
    x: object
@dataclass
class C(B):
    y: object
    def __post_init__(self): self.z = self.y @ b    # p
c = C(a @ b, a @ a)             # q r
d = c.z @ b                     # s
e = c.x @ b                     # t
"""
PROGRAM = re.compile(r"^## (.+):(.*\n(?:## .*\n)*)((?:(?!## ).*\n)+)", re.MULTILINE)
GRAPHS = [
    (name, f"import numpy as np\n{text}".encode(), edges)
    for name, edges, text in PROGRAM.findall(PROGRAMS)
]


def labels(source: bytes) -> dict[str, str]:
    """Site id → the name in its line's comment; several names go to the products in order."""
    named: dict[str, str] = {}
    taken: dict[int, int] = {}
    lines = source.decode().split("\n")
    for site in analyze(source, "m"):
        if site.reason is None:
            names = lines[site.line - 1].rpartition("# ")[2].split()
            named[site.id] = names[taken.get(site.line, 0)]
            taken[site.line] = taken.get(site.line, 0) + 1
    return named
