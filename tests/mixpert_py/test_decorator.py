"""The decorator: a function is itself again, but for its products."""

import asyncio
import inspect
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mixpert_py
from mixpert_py.errors import PlanError
from mixpert_py.passes.pipeline import analyze
from mixpert_py.plan import Plan, Site, save
from mixpert_py.runtime.context import Context, use
from mixpert_py.runtime.modules import precision
from tests.mixpert_py.command import ROOT
from tests.mixpert_py.squares import EXACT, A, is_emulated, sites

pytestmark = pytest.mark.filterwarnings("error")

Load = Callable[..., Any]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Imports source text as a module; `mixpert_py` and `np` are there."""
    names: list[str] = []

    def call(text: str, name: str = "program", encoding: str = "utf-8") -> ModuleType:
        path = tmp_path / f"{name}.py"
        path.write_bytes(textwrap.dedent(text).encode(encoding))
        module = ModuleType(name)
        module.__file__ = str(path)
        module.__dict__.update(mixpert_py=mixpert_py, accelerate=mixpert_py.accelerate, np=np)
        sys.modules[name] = module
        names.append(name)
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
        return module

    yield call
    for name in names:
        del sys.modules[name]


FUNCTIONS = {
    "plain": "@accelerate\ndef call(x):\n    return x @ x",
    "defaults": "@accelerate\ndef call(x, y=None, *rest, z=1, **more):\n    return x @ x * z",
    "lambda": "call = accelerate(lambda x: x @ x)",
    "one name twice": (
        "@accelerate\ndef call(x):\n    return x @ x.T\nfirst = call\n"
        "@accelerate\ndef call(x):\n    return x @ x"
    ),
    "nested": (
        "def outer():\n    count = 0\n    @accelerate\n    def inner(x):\n        nonlocal count\n"
        "        count = 1\n        return x @ x * count\n    return inner\ncall = outer()"
    ),
    "recursion": (
        "import numpy as np\n@accelerate\ndef call(x, n=3):\n"
        "    return call(x, n - 1) if n else np.dot(x, x)"
    ),
    "method": (
        "class C:\n    @accelerate\n    def m(self, x):\n        return x.dot(x)\ncall = C().m"
    ),
    "static inside": (
        "class C:\n    @accelerate\n    @staticmethod\n    def m(x):\n        return x @ x\n"
        "call = C().m"
    ),
    "class method inside": (
        "class C:\n    @accelerate\n    @classmethod\n    def m(cls, x):\n"
        "        assert cls is C\n        return x @ x\ncall = C.m"
    ),
    "bound method": (
        "class C:\n    def __init__(self, x):\n        self.x = x\n"
        "    def m(self):\n        return self.x @ self.x\n"
        "def call(x):\n    return accelerate(C(x).m)()"
    ),
    "abstract method": (
        "import abc\nclass B(abc.ABC):\n    @abc.abstractmethod\n    @accelerate\n"
        "    def m(self, x):\n        return x @ x\nclass C(B):\n    def m(self, x):\n"
        "        return super().m(x)\ncall = C().m\nassert B.__abstractmethods__ == {'m'}"
    ),
    "generator": (
        "@accelerate\ndef rows(x):\n    yield x @ x\ndef call(x):\n    return next(rows(x))"
    ),
    "coroutine": (
        "import asyncio\n@accelerate\nasync def work(x):\n    await asyncio.sleep(0)\n"
        "    return x @ x\ndef call(x):\n    return asyncio.run(work(x))"
    ),
    "asynchronous generator": (
        "import asyncio\nclass C:\n    @accelerate\n    async def rows(self, x):\n"
        "        yield x @ x\nasync def first(x):\n    return [y async for y in C().rows(x)][0]\n"
        "def call(x):\n    return asyncio.run(first(x))"
    ),
    "generator as coroutine": (
        "import asyncio, types\n@accelerate\n@types.coroutine\ndef work(x):\n"
        "    yield\n    return x @ x\nasync def wait(x):\n    return await work(x)\n"
        "def call(x):\n    return asyncio.run(wait(x))"
    ),
    "two levels": (
        "def outer(x):\n    @accelerate\n    def middle():\n        def inner():\n"
        "            nonlocal x\n            x = x @ x\n        inner()\n        return x\n"
        "    return middle()\ncall = outer"
    ),
    "super": (
        "class B:\n    def m(self, x):\n        return x\nclass C(B):\n    @accelerate\n"
        "    def m(self, x):\n        return super().m(x) @ x\ncall = C().m"
    ),
    "private name": (
        "class C:\n    __y = 1\n    @accelerate\n    def m(self, x):\n"
        "        return x @ x * self.__y\ncall = C().m"
    ),
    "under another": (
        "import functools\ndef other(f):\n    @functools.wraps(f)\n    def g(*a):\n"
        "        return f(*a)\n    return g\n@other\n@accelerate\ndef call(x):\n    return x @ x"
    ),
    "future": (
        "from __future__ import annotations\n@accelerate\ndef call(x: Nothing):\n    return x @ x"
    ),
    "the name is taken": "_mixpert = 5\n@accelerate\ndef call(x):\n    return x @ x",
}


@pytest.mark.parametrize("text", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_functions_products_are_rewritten_and_take_a_scheme(load: Load, text: str) -> None:
    module = load(text)
    seen = set(sites(module.call))
    known = {site.id for site in analyze(Path(module.__file__).read_bytes(), "program")}
    assert seen
    assert seen <= known
    for given in ("lambda", "C"):
        text = text.replace(f"accelerate({given}", f'accelerate(scheme="int8x6")({given}')
    text = text.replace("accelerate\n", """accelerate(scheme="int8x6")\n""")
    module = load(text, "another")
    with use(Context()), pytest.warns(UserWarning, match="No GPU can be used here"):
        assert not is_emulated(module.call(A))
    with use(Context(backend="reference")):
        assert is_emulated(module.call(A))


WARNS = """
    @accelerate("float32")
    def call(x):
        if x is None:
            return None
        return x @ x
"""


@pytest.mark.parametrize(
    ("given", "said"),
    [(A, "The native product is faster"), (np.eye(300, dtype="g"), "Schemes are for")],
)
def test_a_scheme_that_no_product_took_is_told_once(load: Load, given: Any, said: str) -> None:
    call = load(WARNS).call
    call(None)
    with pytest.warns(UserWarning, match=said) as caught:
        call(given)
    assert [warning.filename for warning in caught] == [__file__]
    call(given)
    call = load(WARNS, "other").call
    call(np.eye(300))
    call(given)


def test_a_scheme_or_a_plan_may_be_given_without_its_name(load: Load, tmp_path: Path) -> None:
    text = "@accelerate({})\ndef call(x):\n    return x @ x"
    x = np.random.default_rng(0).standard_normal((300, 300))
    single = (x.astype("float32") @ x.astype("float32")).astype("float64")
    assert np.array_equal(load(text.format('"float32"')).call(x), single)
    (site,) = analyze(text.encode(), "other")
    save(Plan(site=[Site(site.id, "float32")]), tmp_path / "p.toml")
    planned = load(text.format(f"{str(tmp_path / 'p.toml')!r}"), "other").call
    assert np.array_equal(planned(x), single)
    with pytest.raises(PlanError, match="did you mean 'float32'"):
        mixpert_py.accelerate("float3")
    with pytest.raises(TypeError, match="by position, or both by name"):
        mixpert_py.accelerate("float32", plan="p.toml")  # type: ignore[call-overload]


def test_a_function_stays_what_it_was(load: Load) -> None:
    text = '''
        def other(f):
            f.tag = 5
            return f

        def plain(x: int, y=2, *rest: str, z=3, **more) -> "float":
            """Doc."""
            return x @ x
    '''
    module = load(text + "\n        call = accelerate(other(plain))")
    assert module.call is not module.plain
    assert module.call.__wrapped__ is module.plain
    assert module.call.tag == 5
    assert inspect.signature(module.call) == inspect.signature(module.plain)
    for name in ("__name__", "__qualname__", "__doc__", "__module__", "__defaults__"):
        assert getattr(module.call, name) == getattr(module.plain, name), name
    assert module.call.__kwdefaults__ == {"z": 3}
    assert module.call.__annotations__ == module.plain.__annotations__
    for name in ("co_firstlineno", "co_filename", "co_qualname", "co_flags", "co_varnames"):
        assert getattr(module.call.__code__, name) == getattr(module.plain.__code__, name), name


def test_closure_cells_are_shared(load: Load) -> None:
    module = load("""
        def outer(x):
            count = 0

            def plain():
                nonlocal count
                count += 1
                return x @ x

            return plain, accelerate(plain), lambda: count
    """)
    plain, ours, count = module.outer(A)
    assert ours.__code__ is not plain.__code__
    for one, other in zip(plain.__closure__, ours.__closure__, strict=True):
        assert one is other
    plain()
    ours()
    assert count() == 2


def test_every_line_stays_where_it_was(load: Load) -> None:
    module = load("""
        def plain(x):
            # a comment
            y = (x @
                 x)

            def inner(z):
                return [
                    w.dot(w) for w in z
                ]

            for _ in range(2):
                y += inner([x])[0]
            return y

        call = accelerate(plain)
    """)
    assert module.call is not module.plain
    assert inspect.getsource(module.call.__code__) == inspect.getsource(module.plain)
    assert inspect.getsource(module.call) == inspect.getsource(module.plain)

    def lines(code: Any) -> list[Any]:
        inside = [lines(part) for part in code.co_consts if hasattr(part, "co_code")]
        return [{line for *_, line in code.co_lines()}, inside]

    assert lines(module.call.__code__) == lines(module.plain.__code__)


AT_A_PROMPT = """\
import mixpert_py
@mixpert_py.accelerate
def f(x):
    return x @ x

print(f.__name__)
"""


def test_at_a_prompt_one_line_says_why_not() -> None:
    command, given = [sys.executable, "-"], {"input": AT_A_PROMPT, "text": True}
    done = subprocess.run(command, capture_output=True, cwd=ROOT, timeout=60, **given)
    (said,) = (line for line in done.stderr.splitlines() if "accelerate:" in line)
    assert "f is left as it is: its source is not available (typed at a prompt" in said
    assert done.stdout == "f\n"


def test_tracebacks_show_the_original_lines(load: Load) -> None:
    module = load('@accelerate(scheme="fp16")\ndef call(x):\n    y = 1\n    return (x @\n      y)')
    with pytest.raises(TypeError) as caught:
        module.call(None)
    frames = traceback.extract_tb(caught.value.__traceback__)
    (frame,) = (frame for frame in frames if frame.filename == module.__file__)
    assert (frame.lineno, frame.name) == (4, "call")
    assert inspect.unwrap(module.call).__code__.co_firstlineno == 1


def test_generators_and_coroutines_run_under_their_scheme(load: Load) -> None:
    module = load("""
        @accelerate(scheme="int8x6")
        def generator(x):
            y = yield x @ x
            try:
                yield y @ y
            finally:
                yield x @ x

        @accelerate(scheme="int8x6")
        async def coroutine(x):
            return x @ x

        @accelerate(scheme="int8x6")
        async def stream(x):
            yield x @ x
    """)
    assert inspect.isgeneratorfunction(module.generator)
    assert inspect.iscoroutinefunction(module.coroutine)
    assert inspect.isasyncgenfunction(module.stream)

    async def both() -> list[Any]:
        return [await module.coroutine(A), *[y async for y in module.stream(A)]]

    with use(Context(backend="reference")):
        running = module.generator(A)
        assert is_emulated(next(running))
        assert is_emulated(running.send(A))
        assert is_emulated(running.throw(KeyError))
        assert all(map(is_emulated, asyncio.run(both())))
        assert not is_emulated(mixpert_py.matmul(A, A))


PRECEDENCE = """\
import numpy as np
import mixpert_py
def call(x):
    return x @ x, np.dot(x, x), np.einsum("ij,jk,kl", x, x, x)
def inside(x):
    with mixpert_py.precision("native"):
        y = x @ x
    return y, x @ x
def commented(x):
    return x @ x  # mixpert: scheme=int8x3
def by_hand(x):
    return mixpert_py.matmul(x, x, scheme="int8x3")
"""


def test_precision_comes_before_what_stands_at_a_site(load: Load) -> None:
    ids = [site.id for site in analyze(PRECEDENCE.encode(), "program")]
    plan = Plan(site=[Site(id=site, scheme="int8x3") for site in ids])
    module = load(PRECEDENCE)
    for given in ({"plan": plan}, {"scheme": "int8x3"}):
        call, inside, commented = (
            mixpert_py.accelerate(**given)(function)
            for function in (module.call, module.inside, module.commented)
        )
        with use(Context(backend="reference")):
            assert is_emulated(call(A)[0])
            assert [is_emulated(y) for y in inside(A)] == [False, True]
            assert np.abs(call(A)[2] - module.call(A)[2]).max() > 0
            with precision("native"):
                assert not any(is_emulated(y) for y in call(A)[:2])
                np.testing.assert_array_equal(call(A)[2], module.call(A)[2])
                assert not is_emulated(commented(A))
                assert is_emulated(module.by_hand(A))  # a person wrote its scheme
                with precision("int8x6"):  # the innermost counts
                    assert 0 < np.abs(call(A)[0] - EXACT).max() < 1e-4


def test_the_example_in_the_docs_does_what_it_shows(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "docs" / "accelerate.md").read_text("utf-8")
    example = text.partition("```python\n")[2].partition("```")[0]
    assert 'accelerate("net.mixpert.toml")' in example
    program = f"import numpy as np\nx = w = np.random.default_rng(0).random((16, 16))\n{example}"
    (site,) = (site.id for site in analyze(program.encode(), "program"))
    save(Plan(site=[Site(id=site, scheme="native")]), tmp_path / "net.mixpert.toml")
    monkeypatch.chdir(tmp_path)
    module = load(program)
    np.testing.assert_array_equal(module.forward(module.x, module.w), module.x @ module.w)
    assert 0 < np.abs(module.y - module.x @ module.w).max() < 1e-4


UNCHANGED = {
    "builtin": ("accelerate(len)", "len .*it is not a Python function"),
    "partial": (
        "import functools\naccelerate(functools.partial(np.dot, np.ones(999)))",
        "accelerate: a partial object is left as it is: it is not a Python function",
    ),
    "no source": (
        "exec('def f(x):\\n    return x @ x', globals())\naccelerate(f)",
        "f is left as it is: its source is not available",
    ),
    "another decorator inside": (
        "import contextlib\n@accelerate(scheme='fp16')\n@contextlib.contextmanager\n"
        "def f(x):\n    yield x @ x",
        "another decorator wraps it; accelerate belongs directly above `def`",
    ),
    "name used": (
        "globals()['_mix' + 'pert'] = 5\n@accelerate\ndef f(x):\n    return x @ x",
        "its module uses the name _mixpert for something else",
    ),
    "what is nested too deeply": (
        f"@accelerate\ndef f(a):\n    return a @ a * {'-' * 300}1\n",
        "f is left as it is: .*: nested more than 250 levels",
    ),
    "another file": (
        "exec(compile('\\n\\n\\ndef f(x): return x @ x', __file__, 'exec'))\naccelerate(f)",
        "its source does not match the running code",
    ),
}


@pytest.mark.parametrize("edited", ["x @ x + 0.5", "x @ y + 1.5"])
def test_a_function_whose_source_was_edited_is_left_as_it_is(load: Load, edited: str) -> None:
    module = load("y = None\ndef f(x): return x @ x + 1.5")
    path = Path(module.__file__)
    path.write_text(path.read_text().replace("x @ x + 1.5", edited))
    with pytest.warns(UserWarning, match="its source does not match the running code"):
        assert mixpert_py.accelerate(module.f) is module.f


@pytest.mark.parametrize(("text", "message"), UNCHANGED.values(), ids=UNCHANGED)
def test_what_cannot_be_rewritten_is_left_as_it_is(load: Load, text: str, message: str) -> None:
    with pytest.warns(UserWarning, match=message) as caught:
        module = load(text)
    assert len(caught) == 1
    assert caught[0].filename == module.__file__
    if text.startswith("exec"):
        np.testing.assert_array_equal(module.f(A), EXACT)


def test_a_wrong_name_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="unknown scheme 'int9'"):
        mixpert_py.accelerate(scheme="int9")
    plan = Plan(site=[Site(id="m:f/matmul~aa#0", scheme="int9")])
    with pytest.raises(PlanError, match="unknown scheme 'int9'"):
        mixpert_py.accelerate(plan=plan)
    with pytest.raises(PlanError, match="cannot read the plan"):
        mixpert_py.accelerate(plan=tmp_path / "absent.toml")
