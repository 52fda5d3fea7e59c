"""Two tables of programs: what is left alone, and what becomes a runtime call."""

import re

import pytest

from mixpert_py.passes.pipeline import analyze, rewrite

NUMPY = "import numpy as np\n"

NOOP = [
    # id, program, reason of its only site (None: no site at all)
    ("comment", "# a @ b\n", None),
    ("string", "x = 'a @ b'\n", None),
    ("einsum-of-the-user", "def einsum(a): pass\neinsum(x)\n", None),
    ("dot-of-mixpert", "import mixpert_py\nmixpert_py.dot(a, b)\n", None),
    ("matmul-of-mixpert", "from mixpert_py import matmul\nmatmul(a, b)\n", None),
    ("at-assign-brackets", "(a) @= b\n", "brackets around the target"),
    ("at-assign-brackets-attribute", "(a.x) @= b\n", "brackets around the target"),
    ("at-assign-tuple", "a @= b, c\n", "an operand that a call would take apart"),
    ("at-assign-yield", "def f():\n    a @= yield b\n", "an operand that a call would take apart"),
    ("einsum-of-another", "import tensorflow\ntensorflow.einsum('ij,jk', a, b)\n",
     "tensorflow.einsum is left native"),
    ("torch-einsum-of-one", "import torch\ntorch.einsum('ii->i', a)\n", "too few operands"),
    ("torch-einsum-of-a-list-of-one", "import torch\ntorch.einsum('ii->i', [a])\n",
     "too few operands"),
    ("torch-einsum-of-a-variable", "import torch\ntorch.einsum('ij,jk', x)\n", "too few operands"),
    ("tensordot-axes-twice", NUMPY + "np.tensordot(a, b, 1, axes=1)\n", "too many arguments"),
    ("tensordot-of-another", "import tensorflow\ntensorflow.tensordot(a, b, 1)\n",
     "tensorflow.tensordot is left native"),
    ("inner-starred", NUMPY + "np.inner(*x)\n", "starred arguments"),
    ("inner-double-starred", NUMPY + "np.inner(a, b, **x)\n", "unpacked keyword arguments"),
    ("inner-method", "x.inner(b)\n", None),
    ("masked-inner", NUMPY + "np.ma.inner(a, b)\n", "numpy.ma.inner is left native"),
    ("vdot", NUMPY + "np.vdot(a, b)\n", "numpy.vdot is left native"),
    ("multi-dot-generator", NUMPY + "np.linalg.multi_dot(x for x in y)\n",
     "a generator as an operand"),
    ("multi-dot-elsewhere", NUMPY + "np.multi_dot([a, b])\n", "numpy.multi_dot is left native"),
    ("matrix-power-keyword", NUMPY + "np.linalg.matrix_power(a, n=2)\n",
     "operands given by keyword"),
    ("cupy-power", "import cupy\ncupy.linalg.matrix_power(a, 2)\n",
     "cupy.linalg.matrix_power is left native"),
    ("blas-too-few-keywords", "from scipy.linalg.blas import dgemm\ndgemm(a=a, b=b)\n",
     "too few operands"),
    ("blas-hermitian", "from scipy.linalg.blas import zherk\nzherk(1, a)\n",
     "scipy.linalg.blas.zherk is left native"),
    ("blas-unknown", "dgemm(1, a, b)\n", "dgemm is not known to be scipy's"),
    ("blas-vectors", "import scipy as sp\nsp.linalg.blas.ddot(a, b)\n",
     "scipy.linalg.blas.ddot is left native"),
    ("opt-einsum", "import opt_einsum as oe\noe.contract('ij,jk', a, b)\n",
     "opt_einsum.contract is left native"),
    ("masked-dot", NUMPY + "np.ma.dot(a, b)\n", "numpy.ma.dot is left native"),
    ("torch-wrong-names", "import torch\ntorch.inner(a, mat2=b)\n",
     "operands given by keyword"),
    ("torch-one", "import torch\ntorch.bmm(a)\n", "too few operands"),
    ("torch-three", "import torch\ntorch.bmm(a, b, c)\n", "too many arguments"),
    ("torch-or-numpy", "try: from torch import matmul\nexcept: from numpy import matmul\n"
     "matmul(a, b)\n", "numpy.matmul is left native"),
    ("torch-method-of-a-view-by-a-call", "x.view(f(y)).mm(y)\n",
     "the method mm of an expression is left native"),
    ("torch-method-power", "x.matrix_power(3)\n", "the method matrix_power is left native"),
    ("torch-method-in-place", "x.addmm_(a, b)\n", "the method addmm_ is left native"),
    ("torch-method-of-stacks", "x.clone().addbmm(a, b)\n", "the method addbmm is left native"),
    ("torch-outer", "import torch\ntorch.outer(a, b)\n", "torch.outer is left native"),
    ("special-method", "a.__matmul__(b)\n", "the method __matmul__ is left native"),
    ("special-method-of-super", "class C(B):\n    def f(self, b): super().__matmul__(b)\n",
     "the method __matmul__ is left native"),
    ("operator-in-place", "import operator\noperator.imatmul(a, b)\n",
     "operator.imatmul is left native"),
    ("operator-in-place-special", "from operator import __imatmul__ as f\nf(a, b)\n",
     "operator.__imatmul__ is left native"),
    ("covariance", NUMPY + "np.cov(a)\n", "numpy.cov is left native"),
    ("correlation", NUMPY + "np.corrcoef(a, rowvar=False)\n", "numpy.corrcoef is left native"),
    ("kronecker", "from numpy import kron as k\nk(a, b)\n", "numpy.kron is left native"),
    ("outer", "import dask.array as da\nda.outer(a, b)\n", "dask.array.outer is left native"),
    ("covariance-of-frames", "frame[x].cov()\n", "the method cov is left native"),
    ("covariance-by-a-star", "from lib import *\ncov(a)\n", "cov may come from a star import"),
    ("vdot-by-a-star", "from numpy import *\nvdot(a, b)\n", "vdot may come from a star import"),
    ("function-in-a-dict", NUMPY + "f = {1: np.dot, 2: np.add}\nf[1](a, b)\n", None),
    ("looked-up", NUMPY + "getattr(np, 'dot')(a, b)\n", None),
    ("torch-method-rebound", "x.mm(x := y)\n", "an assignment among the arguments"),
    ("torch-mv", "import torch\ntorch.mv(a, b)\n", "torch.mv is left native"),
    ("torch-attention", "import torch.nn.functional as F\n"
     "F.scaled_dot_product_attention(q, k, v)\n",
     "torch.nn.functional.scaled_dot_product_attention is left native"),
    ("torch-method-mv", "x.t().mv(y)\n", "mv is left native"),
    ("mv-of-files", "shell.mv(a, b)\n", None),
    ("torch-dot", "import torch\ntorch.dot(a, b)\n", "torch.dot is left native"),
    ("own-function", "def matmul(a, b): pass\nmatmul(x, y)\n",
     "matmul is not known to be numpy's or cupy's"),
    ("xp-none", "xp.matmul()\n", "too few operands"),
    ("torch-layer", "import torch.nn.functional as F\nF.linear(a, bias=b)\n",
     "too few operands"),
    ("operator-keyword", "import operator\noperator.matmul(a, b, out=c)\n",
     "argument out= is left native"),
    ("matvec", NUMPY + "np.matvec(a, b)\n", "numpy.matvec is left native"),
    ("vecdot", NUMPY + "np.vecdot(a, b)\n", "numpy.vecdot is left native"),
    ("einops-keyword", "from einops import einsum\neinsum(a, 'i j -> i', x=b)\n",
     "argument x= is left native"),
    ("xp-keywords", "xp.tensordot(a, b=b)\n", "operands given by keyword"),
    ("xp-double-starred", "xp.einsum('ij,jk', a, b, **k)\n", "unpacked keyword arguments"),
    ("xp-other-keyword", "xp.matmul(a, b, site=c)\n", "argument site= is left native"),
    ("xp-walrus", "xp.dot((xp := a), b)\n", "an assignment among the arguments"),
    ("xp-over-lines", "(xp\n .inner)(a, b)\n", "the function's name spans several lines"),
    ("xp-vdot", "xp.vdot(a, b)\n", "xp is not known to be numpy or cupy"),
    ("handed-on", NUMPY + "reduce(np.dot, [a, b, c])\n", "numpy.dot is handed on as a function"),
    ("handed-on-by-name", "from numpy import matmul as mul\nf(function=mul)\n",
     "numpy.matmul is handed on as a function"),
    ("reduced-lambda", "from functools import reduce\nreduce(lambda a, b: a + b, dot)\n", None),
    ("matmul-of-call", "f(x).matmul(b)\n", "the method matmul of an expression"),
    ("starred", NUMPY + "np.dot(*ab)\n", "starred arguments"),
    ("one-operand", NUMPY + "np.dot(a)\n", "too few operands"),
    ("out-twice", NUMPY + "np.dot(a, b, c, out=d)\n", "more arguments than operands and out"),
    ("dtype", NUMPY + "np.matmul(a, b, dtype=float)\n", "argument dtype= is left native"),
    ("dtype-and-out", NUMPY + "np.matmul(a, b, out=c, dtype=float)\n",
     "more arguments than operands and out"),
    ("method-other-keyword", "x.dot(y, axis=0)\n", "argument axis= is left native"),
    ("method-generator", "x.dot(i for i in y)\n", "a generator as an operand"),
    ("method-in-brackets", "(x.dot)(y)\n", "brackets around the method"),
    ("super-dot", "class C(B):\n    def dot(self, y): return super().dot(y)\n",
     "super().dot is left native"),
    ("name-over-lines", NUMPY + "(np\n .dot)(a, b)\n", "the function's name spans several lines"),
    ("f-string", "f'{a @ b}'\n", "inside an f-string"),
    ("f-string-format", "f'{x:{a @ b}}'\n", "inside an f-string"),
    ("parameter-annotation", "def f(x: A @ B): pass\n", "inside an annotation"),
    ("return-annotation", "def f() -> A @ B: pass\n", "inside an annotation"),
    ("variable-annotation", "x: A @ B = 1\n", "inside an annotation"),
    ("numba-jit-call", "import numba as nb\n@nb.jit(nopython=True)\ndef f(a): return a.dot(a)\n",
     "inside a compiled function"),
    ("jit-or-nothing", "try: from numba import njit\nexcept ImportError:\n"
     "    def njit(f): return f\n@njit\ndef f(a): return a @ a\n", "inside a compiled function"),
    ("lambda-in-jit", "import numba\nf = numba.njit(lambda a: a @ a)\n",
     "inside a compiled function"),
    ("jitted-afterwards", "import numba\ndef f(a): return a @ a\nf = numba.njit(f)\n",
     "inside a compiled function"),
    ("jitclass", "from numba.experimental import jitclass\n@jitclass\nclass C:\n"
     "    def f(self): return self.a @ self.a\n", "inside a compiled function"),
    ("registered", "from numba.extending import register_jitable\n@register_jitable\n"
     "def f(a): return a @ a\n", "inside a compiled function"),
    ("overload", "from numba.extending import overload\n@overload(g)\ndef f(a):\n"
     "    def g(a): return a @ a\n    return g\n", "inside a compiled function"),
    ("class-compiled-afterwards", "from numba.experimental import jitclass\nclass C:\n"
     "    def f(self): return self.a @ self.a\nD = jitclass(spec)(C)\n",
     "inside a compiled function"),
    ("compiled-in-turn", "from numba import njit\ndef f(a): return a @ a\n"
     "g = [njit(h) for h in (f, f)]\n", "may be handed to a compiler"),
    ("jit-of-some-arguments", "from functools import partial\nimport numba\n"
     "@partial(numba.jit, nopython=True)\ndef f(a): return a @ a\n", "inside a compiled function"),
    ("pythran", "#pythran export f(float[:,:])\ndef f(a): return a @ a\n",
     "compiled by Pythran"),
    ("dace", "import dace\n@dace.method\ndef f(a): return a @ a\n",
     "inside a compiled function"),
    ("scripted", "import torch\n@torch.jit.script\ndef f(a): return a @ a\n",
     "inside a compiled function"),
    ("wide-letters", "a.\uff44ot(b)  # dot\n", "written in unusual letters"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("program", "reason"), [pytest.param(p, r, id=name) for name, p, r in NOOP]
)
def test_left_alone(program: str, reason: str | None) -> None:
    source = program.encode()
    assert rewrite(source, "m") == source
    reasons = [site.reason for site in analyze(source, "m")]
    if reason is None:
        assert reasons == []
    else:
        [found] = reasons
        assert found is not None
        assert found.startswith(reason)


DECIDED = [
    # id, program; when it runs, its only product is decided by the function that is called
    ("attribute", "self.xp.einsum('ij,jk', a, b)\n"),
    ("module-of-a-library", "import pennylane as qml\nqml.math.tensordot(a, b, axes=1)\n"),
    ("linalg-of-a-parameter", "def f(np): return np.linalg.multi_dot([a, b, c])\n"),
    ("starred", "self.xp.dot(*ab)\n"),
    ("star-import", "from numpy import *\ndot(a, b)\n"),
    ("star-import-hides", NUMPY + "from lib import *\nnp.dot(a, b)\n"),
    ("unknown-function", "dot(a, b)\n"),
    ("parameter", NUMPY + "def f(np): return np.dot(a, b)\n"),
    ("lambda-parameter", NUMPY + "f = lambda np: np.dot(a, b)\n"),
    ("local-annotation", NUMPY + "def f():\n    np: int\n    np.dot(a, b)\n"),
    ("global-elsewhere", NUMPY + "def f():\n    global np\n    np = 1\nnp.dot(a, b)\n"),
    ("nonlocal", NUMPY + "def f():\n    np = 1\n    def g():\n        nonlocal np\n"
     "        np.dot(a, b)\n"),
    ("enclosing-local", NUMPY + "def f():\n    np = 1\n    def g(): np.dot(a, b)\n"),
    ("deleted", NUMPY + "del np\nnp.dot(a, b)\n"),
    ("comprehension", NUMPY + "[np.dot(a, b) for np in x]\n"),
    ("walrus", NUMPY + "if (np := x): np.dot(a, b)\n"),
    ("walrus-in-comprehension", NUMPY + "def f():\n    [(np := y) for y in z]\n"
     "    np.dot(a, b)\n"),
    ("except-as", NUMPY + "try: pass\nexcept E as np: pass\nnp.dot(a, b)\n"),
    ("match-capture", NUMPY + "match x:\n    case np: np.dot(a, b)\n"),
    ("match-star", NUMPY + "match x:\n    case [*np]: np.dot(a, b)\n"),
    ("match-rest", NUMPY + "match x:\n    case {**np}: np.dot(a, b)\n"),
    ("class-attribute", NUMPY + "class C:\n    np = 1\n    x = np.dot(a, b)\n"),
    ("class-of-that-name", NUMPY + "class np: pass\nnp.dot(a, b)\n"),
    ("two-modules", "try: import numpy as np\nexcept: import mine as np\nnp.dot(a, b)\n"),
    ("method-three", "x.dot(a, b, c)\n"),
    ("method-in-a-variable-with-out", "g = a.dot\ng(b, out=c)\n"),
    ("partial", "from functools import partial\n" + NUMPY
     + "f = partial(xp.matmul, out=c)\nf(a, b)\n"),
    ("partial-of-an-operand", "import functools\nf = functools.partial(xp.dot, a)\nf(b)\n"),
    ("looked-up-in-a-variable", NUMPY + "f = getattr(np, 'matmul')\nf(a, b)\n"),
    ("star-or-import", "try:\n    from lib import *\nexcept ImportError:\n    " + NUMPY
     + "np.dot(a, b)\n"),
]  # fmt: skip


@pytest.mark.parametrize("program", [pytest.param(p, id=name) for name, p in DECIDED])
def test_decided_when_it_runs(program: str) -> None:
    result = rewrite(program.encode(), "m")
    [site] = analyze(program.encode(), "m")
    called = site.expression.rpartition("(")[0]
    assert result.decode().count("_mixpert.xp_product(") == 1
    assert f', site="{site.id}", native={called})' in result.decode()
    assert rewrite(result, "m") == result


REWRITES = [
    # id, program, what becomes of it; @0 stands for `site="…"`
    ("operator", "c = a @ b", "c = M.matmul(a, b, @0)"),
    ("left-associative", "c = a @ b @ d", "c = M.matmul(M.matmul(a, b, @0), d, @0)"),
    ("three", "a @ b @ c @ d",
     "M.matmul(M.matmul(M.matmul(a, b, @0), c, @0), d, @0)"),
    ("subscripts", "c[i @ j] = a[0] @ b[1:]",
     "c[M.matmul(i, j, @0)] = M.matmul(a[0], b[1:], @0)"),
    ("glued-return", "def f(): return(a)@b", "def f(): return M.matmul( (a),b, @0)"),
    ("glued-after", "c = a@(b)if x else 0", "c = M.matmul(a,(b), @0)if x else 0"),
    ("glued-number", "c = [0for x in(a)@b]",
     "c = [0for x in M.matmul( (a),b, @0)]"),
    ("glued-or", "c = x or(a)@b", "c = x or M.matmul( (a),b, @0)"),
    ("comment-before", "c = (a  # x @ y\n     @ b)", "c = (M.matmul(a  # x @ y\n     , b, @0))"),
    ("comment-after", "c = (a @  # it's\n b)", "c = (M.matmul(a,  # it's\n b, @0))"),
    ("backslash-before", "c = a \\\n  @ b", "c = M.matmul(a \\\n  , b, @0)"),
    ("backslash-glued", "c = a@\\\nb", "c = M.matmul(a ,\\\nb, @0)"),
    ("among-decorators", "@d\n@e\ndef f(): return (\n  a\n  @ b\n  )",
     "@d\n@e\ndef f(): return (\n  M.matmul(a\n  , b, @0)\n  )"),
    ("default-argument", "def f(x=a @ b): pass", "def f(x=M.matmul(a, b, @0)): pass"),
    ("decorator-argument", "@d(a @ b)\ndef f(): pass",
     "@d(M.matmul(a, b, @0))\ndef f(): pass"),
    ("decorator-itself", "@(a @ b)\ndef f(): pass", "@(M.matmul(a, b, @0))\ndef f(): pass"),
    ("comprehension", "[x @ y for x in z if x @ x]",
     "[M.matmul(x, y, @0) for x in z if M.matmul(x, x, @0)]"),
    ("semicolons", "a @ b; c @ d", "M.matmul(a, b, @0); M.matmul(c, d, @0)"),
    ("annotated-value", "x: int = a @ b", "x: int = M.matmul(a, b, @0)"),
    ("non-ascii", "größe = 'é→😀' @ ß", "größe = M.matmul('é→😀', ß, @0)"),
    ("at-assign", "a @= b", "a = M.imatmul(a, b, @0)"),
    ("at-assign-glued", "a@=b", "a = M.imatmul(a, b, @0)"),
    ("at-assign-spaces", "é  @=\tb # c", "é = M.imatmul(é, b, site  =\t@ID) # c"),
    ("at-assign-walrus", "a @= (b := c)", "a = M.imatmul(a, (b := c), @0)"),
    ("at-assign-subscript", "a[0] @= b", "M.target(a)[0].imatmul(b, @0)"),
    ("at-assign-slices", "a [ 1:, ::2 ] @= b", "M.target(a) [ 1:, ::2 ].imatmul(b, @0)"),
    ("at-assign-attribute", "self.a @= b", "M.target(self).a.imatmul(b, @0)"),
    ("at-assign-of-call", "if x: f(x).y.z@=b; c=1", "if x: M.target(f(x).y).z.imatmul(b, @0); c=1"),
    ("matmul", NUMPY + "np.matmul(a, b)", NUMPY + "M.matmul(a, b, @0, native=np.matmul)"),
    ("dot", NUMPY + "np.dot(a, b)", NUMPY + "M.dot(a, b, @0, native=np.dot)"),
    ("dask-dot", "import dask.array\ndask.array.dot(a, b)",
     "import dask.array\nM.dot(a, b, @0, native=dask.array.dot)"),
    ("dask-tensordot", "from dask import array as da\nda.tensordot(a, b, axes=1)",
     "from dask import array as da\nM.tensordot(a, b, axes=1, @0, native=da.tensordot)"),
    ("submodule-import", "import numpy.linalg\nnumpy.dot(a, b)",
     "import numpy.linalg\nM.dot(a, b, @0, native=numpy.dot)"),
    ("cupy-or-none", "try:\n    import cupy as cp\nexcept ImportError:\n    cp = None\n"
     "cp.dot(a, b)",
     "try:\n    import cupy as cp\nexcept ImportError:\n    cp = None\n"
     "M.dot(a, b, @0, native=cp.dot)"),
    ("class-scope-not-seen", NUMPY + "class C:\n    np = 1\n    def f(self): np.dot(a, b)",
     NUMPY + "class C:\n    np = 1\n    def f(self): M.dot(a, b, @0, native=np.dot)"),
    ("comprehension-iterable", NUMPY + "[0 for np in np.dot(a, b)]",
     NUMPY + "[0 for np in M.dot(a, b, @0, native=np.dot)]"),
    ("default-before-parameter", NUMPY + "def f(np=np.dot(a, b)): pass",
     NUMPY + "def f(np=M.dot(a, b, @0, native=np.dot)): pass"),
    ("star-before-import", "from lib import *\n" + NUMPY + "np.dot(a, b)",
     "from lib import *\n" + NUMPY + "M.dot(a, b, @0, native=np.dot)"),
    ("out-positional", NUMPY + "np.matmul(a, b, c)",
     NUMPY + "M.matmul(a, b, c, @0, native=np.matmul)"),
    ("arguments-over-lines", NUMPY + "np.dot(\n    a,  # (\n    (b)  # )\n    ,\n)",
     NUMPY + "M.dot(\n    a,  # (\n    (b), @0, native=np.dot  # )\n    ,\n)"),
    ("method", "x.dot(y)", "M.dot_method(x, y, @0)"),
    ("method-out", "f(x).dot(y, z)", "M.dot_method(f(x), y, z, @0)"),
    ("method-out-keyword", "x.dot(y, out=z)", "M.dot_method(x, y, out=z, @0)"),
    ("method-over-lines", "(a\n .dot(b)\n .dot(\n   c))",
     "(M.dot_method(M.dot_method(a\n , b, @0)\n ,\n   c, @0))"),
    ("method-with-comment", "(a  # dot(\n .dot(b))", "(M.dot_method(a  # dot(\n , b, @0))"),
    ("method-of-from-import", "from data import x\nx.dot(y)",
     "from data import x\nM.dot_method(x, y, @0)"),
    ("method-spaces", "a . dot ( b )", "M.dot_method(a ,  b, @0 )"),
    ("own-class-method", "class C:\n    def f(self): return self.dot(1)",
     "class C:\n    def f(self): return M.dot_method(self, 1, @0)"),
    ("inner", NUMPY + "np.inner(a, b)", NUMPY + "M.inner(a, b, @0, native=np.inner)"),
    ("inner-bracketed", NUMPY + "x = (np.inner)((a), (b))  # it",
     NUMPY + "x = (M.inner)((a), (b), @0, native=np.inner)  # it"),
    ("matrix-power", NUMPY + "np.linalg.matrix_power(a, 5)",
     NUMPY + "M.matrix_power(a, 5, @0, native=np.linalg.matrix_power)"),
    ("multi-dot", NUMPY + "np.linalg.multi_dot([a, b, c])",
     NUMPY + "M.multi_dot([a, b, c], @0, native=np.linalg.multi_dot)"),
    ("multi-dot-comprehension", NUMPY + "np.linalg.multi_dot([x for x in y])",
     NUMPY + "M.multi_dot([x for x in y], @0, native=np.linalg.multi_dot)"),
    ("tensordot", NUMPY + "np.tensordot(a, b)",
     NUMPY + "M.tensordot(a, b, @0, native=np.tensordot)"),
    ("tensordot-cupy", "import cupy\ncupy.tensordot(a, b, 1)",
     "import cupy\nM.tensordot(a, b, 1, @0, native=cupy.tensordot)"),
    ("blas", "from scipy.linalg.blas import dgemm\ndgemm(1.0, a, b)",
     "from scipy.linalg.blas import dgemm\nM.blas_gemm(1.0, a, b, @0, native=dgemm)"),
    ("blas-complex", "from scipy.linalg.blas import zgemm\nzgemm(1j, a, b, trans_b=2)",
     "from scipy.linalg.blas import zgemm\nM.blas_gemm(1j, a, b, trans_b=2, @0, native=zgemm)"),
    ("blas-keywords", "from scipy.linalg import blas\n"
     "blas.sgemm(alpha=1, a=a.T, b=b @ d, beta=2, c=c, trans_b=True, overwrite_c=1,)",
     "from scipy.linalg import blas\nM.blas_gemm(alpha=1, a=a.T, b=M.matmul(b, d, @0), beta=2, "
     "c=c, trans_b=True, overwrite_c=1, @0, native=blas.sgemm,)"),
    ("blas-alias", "import scipy.linalg.blas as la\nla.dgemm(1, a, (b), trans_a=(1))",
     "import scipy.linalg.blas as la\n"
     "M.blas_gemm(1, a, (b), trans_a=(1), @0, native=la.dgemm)"),
    ("torch", "import torch\ntorch.matmul(a, b)",
     "import torch\nM.torch_matmul(a, b, @0, native=torch.matmul)"),
    ("torch-imported", "from torch import mm as product\nproduct(a @ b, c)",
     "from torch import mm as product\n"
     "M.torch_matmul(M.matmul(a, b, @0), c, @0, native=product)"),
    ("torch-layer", "from torch.nn import functional as F\nF.linear(a, weight=b, bias=c)",
     "from torch.nn import functional as F\n"
     "M.torch_call(a, weight=b, bias=c, @0, native=F.linear)"),
    ("torch-addmm", "import torch\ntorch.addmm(c, a, b @ d, beta=2, alpha=3)",
     "import torch\n"
     "M.torch_call(c, a, M.matmul(b, d, @0), beta=2, alpha=3, @0, native=torch.addmm)"),
    ("torch-baddbmm", "import torch\ntorch.baddbmm(c, a, b,)",
     "import torch\nM.torch_call(c, a, b, @0, native=torch.baddbmm,)"),
    ("torch-einsum-of-a-list", "import torch\ntorch.einsum('ij,jk', [a, b])",
     "import torch\nM.torch_call('ij,jk', [a, b], @0, native=torch.einsum)"),
    ("torch-einsum", "import torch\ntorch.einsum('ij,jk', *x)",
     "import torch\nM.torch_call('ij,jk', *x, @0, native=torch.einsum)"),
    ("torch-tensordot", "import torch\ntorch.tensordot(a, b, dims=1)",
     "import torch\nM.torch_call(a, b, dims=1, @0, native=torch.tensordot)"),
    ("torch-linalg", "import torch\ntorch.linalg.multi_dot([torch.linalg.matmul(a, b), c])",
     "import torch\nM.torch_call([M.torch_call(a, b, @0, native=torch.linalg.matmul), c], "
     "@0, native=torch.linalg.multi_dot)"),
    ("torch-chain", "import torch\ntorch.chain_matmul(a, b, c)",
     "import torch\nM.torch_call(a, b, c, @0, native=torch.chain_matmul)"),
    ("torch-method", "self.w.T.mm(x.bmm(y))",
     "M.torch_call(M.torch_call(y, @0, native=x.bmm), @0, native=self.w.T.mm)"),
    ("torch-names", "import torch\ntorch.mm(input=a, mat2=b)",
     "import torch\nM.torch_call(input=a, mat2=b, @0, native=torch.mm)"),
    ("torch-name-of-one", "import torch\ntorch.matmul(a, other=b)",
     "import torch\nM.torch_call(a, other=b, @0, native=torch.matmul)"),
    ("torch-addmm-names", "import torch\ntorch.addmm(c, mat1=a, mat2=b, beta=2)",
     "import torch\nM.torch_call(c, mat1=a, mat2=b, beta=2, @0, native=torch.addmm)"),
    ("torch-inner-names", "from torch import inner\ninner(input=a, other=b)",
     "from torch import inner\nM.torch_call(input=a, other=b, @0, native=inner)"),
    ("torch-method-of-a-view", "x.t().mm(y)", "M.torch_call(y, @0, native=x.t().mm)"),
    ("torch-method-of-views", "self.w.T.view(3, n).contiguous().addmm(y, z, beta=2)",
     "M.torch_call(y, z, beta=2, @0, native=self.w.T.view(3, n).contiguous().addmm)"),
    ("torch-method-in-a-chain", "x.T.bmm(y).t().mm(z)",
     "M.torch_call(y, @0, native=x.T.bmm).t().mm(z)"),
    ("torch-method-in-a-variable", "f = x.mm\nf(y)", "f = x.mm\nM.torch_call(y, @0, native=f)"),
    ("torch-method-inner", "import torch\nx.inner(y)",
     "import torch\nM.torch_call(y, @0, native=x.inner)"),
    ("operator-special", "import operator\noperator.__matmul__(a, b)",
     "import operator\nM.matmul(a, b, @0, native=operator.__matmul__)"),
    ("torch-method-addmm", "x.addmm(a, b, beta=0.5)",
     "M.torch_call(a, b, beta=0.5, @0, native=x.addmm)"),
    ("xp", "def f(xp): return xp.matmul(a, b)",
     "def f(xp): return M.xp_product(a, b, @0, native=xp.matmul)"),
    ("xp-chosen", "xp = get_array_module(a)\nxp.dot(xp.einsum(*a, optimize=True), b, out=c,)",
     "xp = get_array_module(a)\nM.xp_product(M.xp_product(*a, optimize=True, @0, "
     "native=xp.einsum), b, out=c, @0, native=xp.dot,)"),
    ("einsum", NUMPY + "np.einsum('ij,jk', a, b)",
     NUMPY + "M.einsum('ij,jk', a, b, @0, native=np.einsum)"),
    ("operator-matmul", "from operator import matmul\nmatmul(a, b)",
     "from operator import matmul\nM.matmul(a, b, @0, native=matmul)"),
    ("einops", "from einops import einsum\neinsum(a, b, 'i j, j k -> i k')",
     "from einops import einsum\nM.einops_einsum(a, b, 'i j, j k -> i k', @0, native=einsum)"),
    ("jax-jit", "import jax\n@jax.jit\ndef f(a): return a @ a",
     "import jax\n@jax.jit\ndef f(a): return M.matmul(a, a, @0)"),
    ("jax-jit-of-some-arguments", "from functools import partial\nfrom jax import jit\n"
     "@partial(jit, static_argnums=0)\ndef f(a): return a @ a",
     "from functools import partial\nfrom jax import jit\n"
     "@partial(jit, static_argnums=0)\ndef f(a): return M.matmul(a, a, @0)"),
    ("reduced", NUMPY + "from functools import reduce\nreduce(np.dot, (a, b, c))",
     NUMPY + "from functools import reduce\n"
     "M.reduce_product(np.dot, (a, b, c), @0, native=reduce)"),
    ("reduced-from-one", "import functools as f\nfrom operator import matmul\n"
     "f.reduce(matmul, a, b)",
     "import functools as f\nfrom operator import matmul\n"
     "M.reduce_product(matmul, a, b, @0, native=f.reduce)"),
    ("reduced-unknown", "from functools import reduce\ndef g(xp): return reduce(xp.dot, a)",
     "from functools import reduce\n"
     "def g(xp): return M.reduce_product(xp.dot, a, @0, native=reduce)"),
    ("variable", NUMPY + "contract = np.einsum\nx = contract('ij,jk', a, b)",
     NUMPY + "contract = np.einsum\nx = M.xp_product('ij,jk', a, b, @0, native=contract)"),
    ("argument-of-a-compiled-function", "from numba import njit\nnjit(lambda a: a @ a)(b @ c)",
     "from numba import njit\nnjit(lambda a: a @ a)(M.matmul(b, c, @0))"),
    ("torch-compile", "import torch\n@torch.compile(fullgraph=True)\ndef f(a): return a @ a\n"
     "g = torch.compile(N(), mode='default')",
     "import torch\n@torch.compile(fullgraph=True)\ndef f(a): return M.matmul(a, a, @0)\n"
     "g = torch.compile(N(), mode='default')"),
    ("einsum-options", NUMPY + "np.einsum('ij,jk', a, b, out=c, dtype=float, order='C')",
     NUMPY + "M.einsum('ij,jk', a, b, out=c, dtype=float, order='C', @0, native=np.einsum)"),
    ("einsum-casting", NUMPY + "np.einsum('ij,jk', a, b, casting='no',)",
     NUMPY + "M.einsum('ij,jk', a, b, casting='no', @0, native=np.einsum,)"),
    ("einsum-starred", NUMPY + "np.einsum('ij,jk', *x, optimize=True)",
     NUMPY + "M.einsum('ij,jk', *x, optimize=True, @0, native=np.einsum)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("program", "expected"), [pytest.param(p, e, id=name) for name, p, e in REWRITES]
)
def test_rewritten(program: str, expected: str) -> None:
    result = rewrite(program.encode(), "m").decode()
    body = result.replace("import mixpert_py as _mixpert  # added by mixpert rewrite\n", "", 1)
    assert body != result
    plain = re.sub(r'site ?= ?"[^"]+"', "@0", body).replace("_mixpert.", "M.")
    assert re.sub(r'"m:[^"]+"', "@ID", plain) == expected
    assert rewrite(result.encode(), "m").decode() == result


def test_kinds() -> None:
    source = b"import numpy as np\na @ b; np.matmul(a, b); np.dot(a, b); a.dot(b); np.vdot(a, b)"
    source += b"; np.inner(a, b); a @= b; np.linalg.multi_dot([a, b])"
    kinds = [site.kind for site in analyze(source, "m")]
    assert kinds == ["matmul", "matmul", "dot", "dot", "vdot", "inner", "matmul", "multi_dot"]
