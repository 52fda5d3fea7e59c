"""Programs in which names of numpy's are bound, hidden and bound anew, and products by those names.

CALL stands for a product by its module's name, `np.dot(a, b)`, and NAME for that function's name.
"""

# ruff: noqa: E501 — one program a row

# Products that the module named np has, with how its function is called.
CALLS = (
    "np.dot(a, b)",
    "np.matmul(a, b)",
    "np.matmul(a, b, out=c)",
    "np.inner(a, b)",
    "np.tensordot(a, b, axes=1)",
    "np.einsum('ij,jk->ik', a, b)",
    "np.linalg.multi_dot([a, b, c])",
)
# The same by the function's own name.
FUNCTIONS = (
    "dot(a, b)",
    "matmul(a, b)",
    "inner(a, b)",
    "tensordot(a, b, 1)",
    "einsum('ij,jk', a, b)",
)

# np is, or may be, something else: nothing is rewritten as NumPy's for certain.
HIDDEN_MODULE = {
    "never bound": "CALL",
    "another module": "import jax.numpy as np\nCALL",
    "from a package": "from autograd import numpy as np\nCALL",
    "a sibling": "from . import numpy as np\nCALL",
    "a parent's": "from ..lib import numpy as np\nCALL",
    "either of two": "try:\n    import numpy as np\nexcept ImportError:\n    import mine as np\nCALL",
    "either branch": "if x:\n    import numpy as np\nelse:\n    np = y\nCALL",
    "assigned": "import numpy as np\nnp = y\nCALL",
    "assigned later": "import numpy as np\ndef f(a, b, c):\n    return CALL\nnp = y",
    "annotated": "import numpy as np\nnp: Any = y\nCALL",
    "unpacked": "import numpy as np\n(np, *z) = y\nCALL",
    "added to": "import numpy as np\nnp += 1\nCALL",
    "walrus": "import numpy as np\nif (np := y):\n    CALL",
    "walrus in a comprehension": "import numpy as np\n[(np := y) for y in z]\nCALL",
    "loop": "import numpy as np\nfor np in z:\n    CALL",
    "with": "import numpy as np\nwith x as np:\n    CALL",
    "except": "import numpy as np\ntry: x()\nexcept E as np:\n    CALL",
    "match": "import numpy as np\nmatch x:\n    case [np, *_]:\n        CALL",
    "match star": "import numpy as np\nmatch x:\n    case [_, *np]:\n        CALL",
    "match rest": "import numpy as np\nmatch x:\n    case {1: 2, **np}:\n        CALL",
    "function": "import numpy as np\ndef np(): pass\nCALL",
    "class": "import numpy as np\nclass np: pass\nCALL",
    "parameter": "import numpy as np\ndef f(np):\n    return CALL",
    "parameter with a default": "import numpy as np\ndef f(np=np):\n    return CALL",
    "positional parameter": "import numpy as np\ndef f(np, /):\n    return CALL",
    "keyword parameter": "import numpy as np\ndef f(*, np):\n    return CALL",
    "starred parameter": "import numpy as np\ndef f(*np):\n    return CALL",
    "parameter around": "import numpy as np\ndef f(np):\n    def g():\n        return CALL",
    "lambda": "import numpy as np\nf = lambda np: CALL",
    "comprehension": "import numpy as np\nx = [CALL for np in z]",
    "inner loop of a comprehension": "import numpy as np\nx = {CALL for i in z for np in i}",
    "local": "import numpy as np\ndef f():\n    np = y\n    return CALL",
    "local later": "import numpy as np\ndef f():\n    CALL\n    np = y",
    "deleted local": "import numpy as np\ndef f():\n    del np\n    return CALL",
    "global": "import numpy as np\ndef f():\n    global np\n    np = y\nCALL",
    "global elsewhere": "import numpy as np\ndef f():\n    return CALL\ndef g():\n    global np\n    np = y",
    "nonlocal": "def f():\n    import numpy as np\n    def g():\n        nonlocal np\n        np = y\n    CALL",
    "class scope": "import numpy as np\nclass C:\n    np = y\n    z = CALL",
    "imported in a class": "class C:\n    import numpy as np\n    def f(self):\n        return CALL",
    "imported in a function": "def f():\n    import numpy as np\ndef g():\n    return CALL",
    "star after": "import numpy as np\nfrom mine import *\nCALL",
    "attribute": "import numpy as np\nself.CALL",
    "masked": "import numpy.ma as np\nCALL",
}  # fmt: skip
# Where nothing tells that np is no array, `np.dot(a, b)` is a method with `out`, as which it is
# rewritten: that call does what np's own would, whatever np is.
NO_MODULE = ("never bound", "imported in a class", "imported in a function", "attribute")
# The same for a function's own name.
HIDDEN_FUNCTION = {
    "never bound": "CALL",
    "another module's": "from mine import NAME\nCALL",
    "a sibling's": "from .numpy import NAME\nCALL",
    "another function": "from mine import f as NAME\nCALL",
    "either of two": "try:\n    from numpy import NAME\nexcept ImportError:\n    from mine import NAME\nCALL",
    "own": "from numpy import NAME\ndef NAME(*x): pass\nCALL",
    "own async": "async def NAME(*x): pass\nCALL",
    "class": "class NAME: pass\nCALL",
    "assigned": "from numpy import NAME\nNAME = y\nCALL",
    "from an object": "NAME = x.NAME\nCALL",
    "parameter": "from numpy import NAME\ndef f(NAME):\n    return CALL",
    "local": "from numpy import NAME\ndef f():\n    CALL\n    NAME = y",
    "comprehension": "from numpy import NAME\nx = [CALL for NAME in z]",
    "lambda": "from numpy import NAME\nf = lambda NAME: CALL",
    "star import": "from mine import *\nCALL",
    "in a string": "from numpy import NAME\nx = '''CALL'''",
    "in a comment": "from numpy import NAME\nx = y  # CALL",
}  # fmt: skip


# Products without a name that could be hidden.
OPERATORS = (
    "a @ b", "(a @ b).T @ c", "-a @ b", "a.T @ b[0] @ c", "f(a @ b)", "x = y = a @ b", "a @= b",
    "self.x @= a", "x[i] @= a", "x = a.dot(b)", "x = a.T.dot(b).dot(c)", "x = f(a).dot(b, out=c)",
    "x = a.dot(b @ c)", "x = (a @ b).dot(c)", "x = [a @ b for a in c]", "x = lambda a, b: a @ b",
    "assert (a @ b == c).all()", "for x in a @ b: pass", "del x[a @ b]", "x = a @ b if c else b @ a",
)  # fmt: skip
# Products all the same, but not certain enough, or in a place that no call can stand in.
MISSED = (
    "x = f'{a @ b}'",
    "import numpy as np\nx = np.dot(*ab)",
    "from numba import njit\n@njit\ndef f(a, b): return a @ b",
)
