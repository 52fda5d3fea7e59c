"""Products of functions that `torch.compile` compiles, by the reference backend."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mixpert_py
from mixpert_py import compiled, precision

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch._dynamo.utils import counters  # noqa: E402

SCHEME = "int8x3"


@pytest.fixture(autouse=True)
def threads_end() -> Iterator[None]:
    """Idle threads of Inductor would keep PyTorch's kernels replaced for the tests that follow."""
    yield
    from torch._inductor.async_compile import AsyncCompile

    AsyncCompile.pool().shutdown()
    AsyncCompile.pool.cache_clear()
    with precision("native"):  # at its end the kernels are put back
        pass


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch.manual_seed(0)
    torch._dynamo.reset()
    counters.clear()
    compiled.follow()


def emulated(a: Any, b: Any, scheme: str = SCHEME) -> Any:
    left, right = (x.detach().numpy() for x in (a, b))
    return torch.from_numpy(mixpert_py.matmul(left, right, scheme=scheme, backend="reference"))


def in_one_graph(function: Any, *operands: Any, scheme: str = SCHEME, **options: Any) -> Any:
    """The result of a compiled function under a scheme; it must be one graph."""
    call = torch.compile(function, fullgraph=True, **options)
    with precision(scheme, backend="reference"):
        return call(*operands)


FUNCTIONS = {
    "mm": (lambda a, b: a @ b, (8, 32), (32, 4), lambda a, b: emulated(a, b)),
    "transposed": (lambda a, b: a @ b.T, (8, 32), (4, 32), lambda a, b: emulated(a, b.T)),
    "bmm": (lambda a, b: a @ b, (3, 8, 32), (3, 32, 4), lambda a, b: emulated(a, b)),
    "einsum": (
        lambda a, b: torch.einsum("ij,kj->ik", a, b),
        *((8, 32), (4, 32), lambda a, b: emulated(a, b.T)),
    ),
    "sum": (
        lambda a, b: torch.addmm(b[0], a, b, beta=-2.0, alpha=0.5),
        *((8, 32), (32, 4), lambda a, b: 0.5 * emulated(a, b) - 2.0 * b[0]),
    ),
    "sum without its addend": (
        lambda a, b: torch.addmm(b[0] * torch.nan, a, b, beta=0),
        *((8, 32), (32, 4), lambda a, b: emulated(a, b)),
    ),
    "rewritten call": (
        lambda a, b: mixpert_py.matmul(a, b, site="m:f/matmul~0123ab#0"),
        *((8, 32), (32, 4), lambda a, b: emulated(a, b)),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_product_in_a_graph_is_the_schemes(name: str) -> None:
    function, left, right, expected = FUNCTIONS[name]
    a, b = torch.randn(left), torch.randn(right)
    result = in_one_graph(function, a, b)
    torch.testing.assert_close(result, expected(a, b), rtol=1e-6, atol=1e-6)
    assert not torch.allclose(result, function(a, b), rtol=1e-6, atol=1e-6)


def test_products_of_the_backward_pass_are_the_schemes() -> None:
    layer, x = torch.nn.Linear(64, 16), torch.randn(8, 64)
    in_one_graph(layer, x).sum().backward()
    gradient = emulated(torch.ones(16, 8), x)
    torch.testing.assert_close(layer.weight.grad, gradient, rtol=1e-6, atol=1e-5)
    assert not torch.allclose(layer.weight.grad, torch.ones(16, 8) @ x, rtol=1e-6, atol=1e-5)


def test_another_scheme_compiles_anew_and_nothing_recompiles_otherwise() -> None:
    a, b = torch.randn(8, 32), torch.randn(32, 4)
    call = torch.compile(lambda a, b: a @ b, fullgraph=True)
    natively = call(a, b)
    found = {}
    for scheme in ("int8x3", "native", "int8x1", "int8x3"):
        with precision(scheme, backend="reference"):
            found[scheme] = call(a, b)
    torch.testing.assert_close(found["int8x3"], emulated(a, b), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found["int8x1"], emulated(a, b, "int8x1"), rtol=1e-6, atol=1e-6)
    assert torch.equal(found["native"], natively)
    assert torch.equal(call(a, b), natively)
    assert counters["stats"]["unique_graphs"] == 1


def test_shapes_that_change_keep_their_scheme() -> None:
    call = torch.compile(lambda a, b: a @ b, fullgraph=True, dynamic=True)
    b = torch.randn(32, 4)
    for rows in (8, 5, 3):
        for scheme in ("int8x3", "int8x1"):
            a = torch.randn(rows, 32)
            with precision(scheme, backend="reference"):
                result = call(a, b)
            torch.testing.assert_close(result, emulated(a, b, scheme), rtol=1e-6, atol=1e-6)
    assert counters["stats"]["unique_graphs"] == 1


def test_a_graph_that_is_compiled_anew_has_the_same_fixed_shapes() -> None:
    """Its backward pass would lack an extent that it adds to another."""
    a, b, w = torch.randn(5, 32), torch.randn(3, 32), torch.randn(32, 4, requires_grad=True)
    call = torch.compile(lambda a, b, w: torch.cat([a, b]) @ w, fullgraph=True)
    call(a, b, w)
    with precision(SCHEME, backend="reference"):
        call(a, b, w).sum().backward()
    expected = emulated(torch.cat([a, b]).T, torch.ones(8, 4))
    torch.testing.assert_close(w.grad, expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_graph_with_branches_runs_under_another_scheme(dynamic: bool) -> None:
    def product(a: Any, b: Any) -> Any:
        return torch.cond(a.sum() > 0, lambda a, b: a @ b, lambda a, b: a @ b, (a, b))

    a, b = torch.randn(64, 64), torch.randn(64, 64)
    call = torch.compile(product, fullgraph=True, dynamic=dynamic)
    for scheme in ("native", "int8x1"):
        with precision(scheme, backend="reference"):
            result = call(a, b)
        torch.testing.assert_close(result, a @ b, rtol=0.1, atol=1)


def test_a_scheme_written_at_a_call_holds_in_a_graph() -> None:
    a, b = torch.randn(8, 32), torch.randn(32, 4)

    def product(a: Any, b: Any) -> Any:
        return mixpert_py.matmul(a, b, scheme="int8x1", backend="reference", site="m:f/matmul~1#0")

    with mixpert_py.runtime.context.use(under_run()):
        result = torch.compile(product, fullgraph=True)(a, b)
    torch.testing.assert_close(result, emulated(a, b, "int8x1"), rtol=1e-6, atol=1e-6)


def under_run() -> Any:
    """What `mixpert run` puts in force without a plan."""
    from mixpert_py.runtime.context import Context, Modules

    return Context(modules=Modules())


def test_the_backend_by_name() -> None:
    a, b = torch.randn(8, 32), torch.randn(32, 4)
    call = torch.compile(lambda a, b: a @ b, backend=compiled.backend, fullgraph=True)
    torch.testing.assert_close(call(a, b), a @ b, rtol=1e-6, atol=1e-6)
    with precision(SCHEME, backend="reference"):
        torch.testing.assert_close(call(a, b), emulated(a, b), rtol=1e-6, atol=1e-6)


def test_the_programs_own_passes_run_first() -> None:
    from torch._inductor import config, custom_graph_pass

    seen: list[Any] = []

    def plain(graph: Any) -> None:
        seen.append([str(node.target) for node in graph.nodes if node.op == "call_function"])

    class Aware(custom_graph_pass.CustomInferenceAwareGraphPass):  # type: ignore[misc, name-defined]
        def __call__(self, graph: Any, is_inference: bool) -> None:
            seen.append(is_inference)

        def uuid(self) -> str:
            return "aware"

    a, b = torch.randn(8, 32), torch.randn(32, 4)
    with mixpert_py.runtime.context.use(under_run()):
        options = {compiled.PASS: [plain, Aware()]}
        torch.compile(lambda a, b: a @ b, options=options)(a, b)
    assert seen == [["aten.mm.default"], True]
    with config.patch(compiled.PASS, plain):
        result = in_one_graph(lambda a, b: a @ b, a, b)
    assert seen[2:] == [["aten.mm.default"]]
    torch.testing.assert_close(result, emulated(a, b), rtol=1e-6, atol=1e-6)


CALLS_OF_NUMPY = {
    "dot": lambda a, b: mixpert_py.dot(a, b, site="m:f/dot~1#0", native=np.dot),
    "einsum": lambda a, b: mixpert_py.einsum("ij,jk", a, b, site="m:f/einsum~1#0"),
    "inner": lambda a, b: mixpert_py.inner(a, b.T, site="m:f/inner~1#0"),
    "multi_dot": lambda a, b: mixpert_py.multi_dot([a, b], site="m:f/multi_dot~1#0"),
    "tensordot": lambda a, b: mixpert_py.tensordot(a, b, 1, site="m:f/tensordot~1#0"),
}


@pytest.mark.parametrize("name", CALLS_OF_NUMPY)
def test_rewritten_calls_of_numpy_are_in_a_graph(name: str) -> None:
    a, b = torch.randn(8, 32), torch.randn(32, 4)
    result = in_one_graph(CALLS_OF_NUMPY[name], a.numpy(), b.numpy())
    torch.testing.assert_close(torch.from_numpy(result), emulated(a, b), rtol=1e-6, atol=1e-6)


def test_a_call_between_two_graphs_is_not_read() -> None:
    a, site = np.arange(8.0), "m:f/inner~2#0"
    call = torch.compile(lambda a: mixpert_py.inner(a, a, native=np.convolve, site=site) + 1)
    np.testing.assert_array_equal(call(a), np.convolve(a, a) + 1)
    assert sum(counters["graph_break"].values()) <= 1


def test_the_operators_keep_pytorchs_rules() -> None:
    from mixpert_py.runtime.products.graphs import operators

    a, b = torch.randn(3, 8, 32), torch.randn(3, 4, 32).transpose(1, 2)
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(operators()["mm"], (a[0], b[0], "", None, None), test_utils=checks)
    torch.library.opcheck(operators()["bmm"], (a, b, "", None, None), test_utils=checks)


def test_transformed_products_are_the_schemes() -> None:
    def transformed(xs: Any, w: Any) -> Any:
        def product(x: Any, w: Any) -> Any:
            return mixpert_py.matmul(x, w, site="m:f/matmul~0123ab#0").tanh() @ w.T

        def loss(w: Any, x: Any) -> Any:
            return checkpoint(lambda w: product(x, w).square().sum(), w, use_reentrant=False)

        mapped = func.vmap(product, (0, None))(xs, w)
        gradients = func.vmap(func.grad(lambda w, x: product(x, w).sum()), (None, 0))(w, xs)
        jacobian = func.jacrev(lambda w: product(xs[0], w))(w)
        tangent = func.jvp(lambda w: product(xs[0], w), (w,), (w.cos(),))[1]
        return mapped, gradients, jacobian, tangent, loss(w, xs)

    func, checkpoint = torch.func, torch.utils.checkpoint.checkpoint
    xs, w = torch.randn(3, 4, 16), torch.randn(16, 8, requires_grad=True)
    found = []
    for function in (transformed, lambda *given: in_one_graph(transformed, *given)):
        *results, loss = function(xs, w)
        found.append([*results, *torch.autograd.grad(loss, w)])
    for native, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, native, rtol=1e-2, atol=1e-2)
        assert not torch.allclose(ours, native, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("is_inside", [True, False])
def test_regions_of_autocast_are_pytorchs_own(is_inside: bool) -> None:
    def product(a: Any, b: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=is_inside):
            return a @ b

    a, b = torch.randn(8, 32), torch.randn(32, 4)
    with torch.autocast("cpu", torch.bfloat16, enabled=not is_inside):
        assert torch.equal(in_one_graph(product, a, b), product(a, b)) == is_inside


class Attention(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (torch.nn.Linear(8, 8) for _ in range(2))
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        y = self.first(x)
        y = self.first(y)
        y = self.first(y)
        y = self.second(y) + self.attention(
            y,
            y,
            y,
        )[0]  # fmt: skip
        rows = [row @ row.T for row in y]
        return torch.einsum("bij,bkj->bik", y, y) + sum(rows) + (lambda z: z @ z.mT)(y)


def sites(*nets: Any) -> set[str]:
    """The call sites of a training step of modules that are called one after the other."""
    from mixpert_py.runtime.context import Context, Modules, use
    from mixpert_py.runtime.modules import covered_for
    from mixpert_py.runtime.tracing.trace import Trace

    trace, x = Trace(), torch.randn(2, 4, 8)
    context = Context("native", backend="reference", trace=trace, modules=Modules())
    with covered_for("reference", takes_small=True), use(context):
        first, *others = nets
        x = first(x)
        for other in others:
            x = other(x)[0]
        x.sum().backward()
    return set(trace.sites)


def test_the_same_module_has_the_same_sites_eager_and_compiled() -> None:
    net = Attention()
    eager = sites(net)
    assert eager == sites(torch.compile(net))
    assert len(eager) == 2 * 9


@pytest.mark.filterwarnings("error:Dynamo does not know:UserWarning")
@pytest.mark.parametrize("second", [torch.nn.Linear(8, 4), torch.nn.GRU(8, 4)])
def test_a_module_of_pytorchs_own_has_the_site_of_its_call(second: Any) -> None:
    """Dynamo leaves a GRU uncompiled."""
    nets = torch.nn.Linear(8, 8), second
    eager = sites(*nets)
    assert eager == sites(*map(torch.compile, nets))
    assert len(eager) == 2 * 2


PROGRAM = """
import torch

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x @ x.T


net, x = torch.compile(Net(), fullgraph=True), torch.randn(8, 32)
for rows in (8, 8, 6):
    net(x[:rows]).sum().backward()
print(net(x).sum().item())
"""


def run(folder: Path, *words: str) -> tuple[float, dict[str, dict[str, Any]]]:
    """What the program prints under `mixpert run --backend reference`, and its profile by site."""
    (folder / "p.py").write_text(PROGRAM, "utf-8")
    words = ("--backend", "reference", "--profile", "--json", "profile.json", *words, "p.py")
    command = [sys.executable, "-m", "mixpert_py", "run", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)
    assert done.returncode == 0, done.stderr
    sites = json.loads((folder / "profile.json").read_text("utf-8"))
    return float(done.stdout.split()[0]), {site["id"]: site for site in sites}


def test_a_program_has_its_compiled_products_in_the_profile(tmp_path: Path) -> None:
    native, sites = run(tmp_path, "--scheme", "native")
    lowered, others = run(tmp_path, "--scheme", SCHEME)
    assert sites.keys() == others.keys()
    assert {site["line"] for site in sites.values()} == {14, 15}
    assert lowered == pytest.approx(native, rel=1e-2)
    assert lowered != native
    again, others = run(tmp_path, "--scheme", SCHEME)  # by code from the compiler's cache
    assert again == lowered
    assert all(set(site["schemes"]) == {SCHEME} for site in others.values())
    # A plan chooses by site.
    (chosen,) = (id for id, site in sites.items() if site["line"] == 15 and ".backward" not in id)
    (tmp_path / "plan.toml").write_text(
        f'schema = 1\n[[site]]\nid = "{chosen}"\nexpression = "x @ x.T"\nscheme = "int8x1"\n'
    )
    _, planned = run(tmp_path, "--plan", "plan.toml")
    ran = {id: set(site["schemes"]) for id, site in planned.items()}
    backward = f"{chosen[:-2]}.backward#0"
    assert ran[chosen] == ran[backward] == {"int8x1"}
    assert all(schemes == {"native"} for id, schemes in ran.items() if id not in {chosen, backward})


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning", "error::UserWarning")
def test_pytorchs_tracer_records_the_products_of_the_program() -> None:
    """Always at one place: it raises an error where it finds another one when it checks."""
    x = torch.randn(8, 8)

    def product(a: Any, b: Any) -> Any:
        return mixpert_py.matmul(a, b, site="s") + mixpert_py.matmul(a, b, scheme=SCHEME)

    for _ in range(2):  # before anything is known of the product, and afterwards
        traced = torch.jit.trace(product, (x, x))
        assert str(traced.graph).count("aten::matmul") == 2
        assert torch.equal(traced(x, x), x @ x + x @ x)
        for _ in range(3):
            product(x, x)
