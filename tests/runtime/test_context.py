"""What is in force: scopes, threads, tasks, generators, and which plan decides."""

import asyncio
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mixpert_py
from mixpert_py.plan import Plan, Site
from mixpert_py.runtime import context as contexts
from mixpert_py.runtime.api import matmul
from mixpert_py.runtime.context import (
    UNCHOSEN,
    Context,
    current,
    passes,
    use,
)
from mixpert_py.runtime.kernels import compile as kernels
from mixpert_py.runtime.modules import precision
from mixpert_py.runtime.tracing.trace import Trace

SITE = "m:f/matmul~aa#0"
OTHER = "m:g/matmul~bb#0"


def plan(scheme: str, site: str = SITE) -> Plan:
    return Plan(site=[Site(id=site, scheme=scheme)])


def in_thread() -> Context:
    seen = []
    thread = threading.Thread(target=lambda: seen.append(current()))
    thread.start()
    thread.join()
    return seen[0]


@pytest.fixture
def default() -> Iterator[Context]:
    before = current()
    force = Context(scheme="int8x3")
    contexts.set_default(force)
    yield force
    contexts.set_default(before)


def test_precision_nests_and_restores() -> None:
    before = current()
    with precision("int8x6", backend="reference"):
        outer = current()
        assert (outer.scheme, outer.backend) == ("int8x6", "reference")
        with precision("float32"):
            assert (current().scheme, current().backend) == ("float32", "reference")
        assert current() is outer
        with pytest.raises(ZeroDivisionError), precision("fp16"):
            raise ZeroDivisionError
        assert current() is outer
    assert current() is before


def test_threads_see_the_default_and_no_override(default: Context) -> None:
    assert current() is in_thread() is default
    with precision("fp16"):
        assert current().scheme == "fp16"
        assert in_thread() is default


def test_tasks_do_not_disturb_one_another() -> None:
    async def task(scheme: str, seen: list[str | None]) -> None:
        with precision(scheme):
            for _ in range(3):
                await asyncio.sleep(0)
                seen.append(current().scheme)

    async def main() -> list[list[str | None]]:
        seen: list[list[str | None]] = [[], []]
        with precision("fp16"):
            await asyncio.gather(task("int8x6", seen[0]), task("int8x3", seen[1]))
            assert current().scheme == "fp16"
        return seen

    assert asyncio.run(main()) == [["int8x6"] * 3, ["int8x3"] * 3]
    assert current().scheme is None


def generator(scheme: str) -> Iterator[str | None]:
    with precision(scheme):
        yield current().scheme
        yield current().scheme


def test_generators_that_end_out_of_turn_leave_nothing_behind() -> None:
    for _ in zip(generator("int8x6"), generator("int8x3"), strict=True):
        pass
    assert current().scheme is None
    first, second = generator("int8x6"), generator("int8x3")
    next(first), next(second)
    first.close()  # type: ignore[attr-defined]
    assert current().scheme == "int8x3"
    second.close()  # type: ignore[attr-defined]
    assert current().scheme is None


@pytest.mark.filterwarnings("error")
def test_a_generator_may_end_in_another_thread() -> None:
    held, seen = [generator("int8x6")], []
    began, ended = threading.Event(), threading.Event()

    def work() -> None:
        next(held[0])
        began.set()
        assert ended.wait(10)
        with use(current()):
            pass
        seen.append(current().scheme)

    thread = threading.Thread(target=work)
    thread.start()
    assert began.wait(10)
    held.clear()
    ended.set()
    thread.join()
    assert (seen, current().scheme) == ([None], None)


@pytest.mark.parametrize(
    ("force", "known"),
    [
        (Context(), True),
        (Context(plan=plan("native")), True),
        (Context(scheme="native"), True),
        (Context(plan=plan("float32")), False),
        (Context(scheme="float32"), False),
        (Context(backend="reference"), True),
        (Context(backend="cuda"), False),
        (Context(trace=Trace()), False),
    ],
)
def test_a_site_passes_once_it_is_known_to(force: Context, known: bool) -> None:
    before = passes(SITE)  # nothing was put in force before: others may have used the site so
    with use(force):
        assert not passes(SITE)
        force.choice(SITE)
        assert passes(SITE) == known
    assert passes(SITE) == before


@pytest.mark.filterwarnings("error")
def test_a_stale_site_warns_once_at_the_product() -> None:
    a = np.eye(2)
    said = (
        r"^call site m:g/matmul~bb#0 is not in the plan \(stale\?\); it runs as if there were none$"
    )
    with use(Context(plan=plan("float32"))):
        with pytest.warns(UserWarning, match=said) as caught:
            matmul(a, a, site=OTHER)
        np.testing.assert_array_equal(matmul(a, a, site=OTHER), a)
    assert caught[0].filename == __file__


@pytest.mark.filterwarnings("error")
def test_a_plan_may_be_about_the_sites_that_it_names_alone() -> None:
    force = Context(plan=plan("float32"), by_id=True)
    assert force.choice(OTHER) is UNCHOSEN
    assert force.choice("renamed:f/matmul~aa#0") is UNCHOSEN
    assert force.choice(SITE).scheme == "float32"


@pytest.mark.parametrize(
    ("scheme", "product", "said"),
    [
        ("float32", lambda x, y: x @ y, "no product inside reached MixPert-Py"),
        ("int8x6", mixpert_py.matmul, "int8x6: products run natively. No GPU can be used here"),
        ("float32", lambda x, y: mixpert_py.matmul(x[:2], y), "faster at this size"),
        ("float32", lambda x, y: mixpert_py.inner(x.astype("g"), y), "Schemes are"),
        (
            "float32",  # integers are exact under any scheme
            lambda x, y: (
                mixpert_py.matmul(x[:2], y),
                mixpert_py.matmul(x.astype(int), y.astype(int)),
            ),
            "faster at this size",
        ),
    ],
)
def test_a_block_whose_scheme_no_product_takes_is_told_once(
    scheme: str, product: Callable[..., Any], said: str
) -> None:
    x = np.ones((300, 300))
    with pytest.warns(UserWarning, match=said) as caught, precision(scheme):
        product(x, x)
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.filterwarnings("error")
def test_a_block_in_which_a_product_takes_the_scheme_is_not_told() -> None:
    x = np.ones((300, 300))
    with precision("float32"):
        mixpert_py.matmul(x, x)
        mixpert_py.matmul(x[:2], x)
    with precision("float32"), precision("int8x6", backend="reference"):
        mixpert_py.matmul(x, x)  # the outer scheme is overridden, not lost
    with precision("native"):
        assert (x @ x)[0, 0] == 300


def test_a_renamed_file_keeps_its_plan() -> None:
    with pytest.warns(UserWarning, match="runs as m:f/matmul~aa#0, the same expression"):
        choice = Context(plan=plan("fp16")).choice("renamed:f/matmul~aa#0")
    assert choice.scheme == "fp16"


@pytest.mark.filterwarnings("error")
def test_a_program_that_makes_errors_of_warnings_goes_on_without_a_gpu(
    capsys: pytest.CaptureFixture[str],
) -> None:
    a = np.ones((64, 64), np.float32)
    with use(Context(scheme="int8x6")):
        products = [mixpert_py.matmul(a, a) for _ in range(2)]
    assert all((product == 64).all() for product in products)
    assert capsys.readouterr().err.count("int8x6: products run natively.") == 1


def multiplied(pipe: Any) -> None:
    a = np.random.default_rng(0).standard_normal((8, 8))
    pipe.send(matmul(a, a, scheme="int8x6", backend="reference"))


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_children_multiply_as_their_parent(start: Any) -> None:
    a = np.random.default_rng(0).standard_normal((8, 8))
    context = multiprocessing.get_context(start)
    ours, theirs = context.Pipe()
    child = context.Process(target=multiplied, args=(theirs,))
    with use(Context(scheme="int8x6")):
        child.start()
    assert ours.poll(60)
    np.testing.assert_array_equal(ours.recv(), matmul(a, a, scheme="int8x6", backend="reference"))
    child.join(60)
    assert child.exitcode == 0


def test_a_home_that_cannot_be_written_costs_a_compilation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "a file"
    home.touch()
    monkeypatch.setenv("HOME", str(home))
    made: Callable[[], bytes] = lambda: b"code"  # noqa: E731
    assert kernels.cached(b"place", made) == b"code"
    assert list(tmp_path.iterdir()) == [home]
