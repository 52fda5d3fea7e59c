"""PyTorch's own products, on tensors of the host's memory by the reference backend."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mixpert_py
from mixpert_py import plan as plan_file
from mixpert_py import precision
from mixpert_py.plan import Plan, module_name
from mixpert_py.runtime import modules, signatures
from mixpert_py.runtime.context import Context, Modules, current, use
from mixpert_py.runtime.modules import MOST_NATIVE, is_in_place, modules_covered, on_host
from mixpert_py.runtime.products import below_autograd
from mixpert_py.runtime.products.tensors import torch_call
from mixpert_py.runtime.reasons import Reason
from mixpert_py.runtime.request import Call
from mixpert_py.runtime.tracing.trace import Trace

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
F = torch.nn.functional


@pytest.fixture(autouse=True)
def host() -> Iterator[None]:
    torch.manual_seed(0)
    with on_host():
        yield
    assert not is_in_place()


def emulated(a: Any, b: Any, scheme: str) -> Any:
    return torch.from_numpy(mixpert_py.matmul(a, b, scheme=scheme, backend="reference"))


def test_linear_is_the_schemes_product_and_the_bias() -> None:
    layer, x = torch.nn.Linear(64, 16), torch.randn(8, 64)
    weight = layer.weight.detach().numpy()
    with precision("int8x6", backend="reference"):
        y = layer(x)
    expected = emulated(x.numpy(), weight.T, "int8x6") + layer.bias
    assert torch.equal(y, expected)
    assert not torch.equal(layer(x), expected)  # and natively again


@pytest.mark.parametrize(
    ("beta", "alpha"), [(1.0, 1.0), (0.0, 1.0), (-2.0, 0.5)], ids=["plain", "no sum", "factors"]
)
@pytest.mark.parametrize("name", ["addmm", "baddbmm"])
def test_sums_have_their_factors(name: str, beta: float, alpha: float) -> None:
    stack = (3,) if name == "baddbmm" else ()
    a, b = torch.randn(*stack, 8, 32), torch.randn(*stack, 32, 4)
    c = torch.randn(*stack, 8, 4) if beta else torch.full((*stack, 8, 4), torch.nan)
    function = getattr(torch, name)
    with precision("int8x3", backend="reference"):
        got = function(c, a, b, beta=beta, alpha=alpha)
    product = emulated(a.numpy(), b.numpy(), "int8x3") * alpha
    torch.testing.assert_close(got, product + beta * c if beta else product)


def test_the_backward_pass_has_the_same_scheme() -> None:
    x, w = torch.randn(8, 64), torch.randn(64, 16, requires_grad=True)
    with precision("int8x6", backend="reference"):
        y = torch.mm(x, w)
    y.sum().backward()  # outside of the block
    assert is_in_place() is False
    native = w.grad.clone()
    w.grad = None
    with precision("int8x6", backend="reference"):
        torch.mm(x, w).sum().backward()
    ones = np.ones((8, 16), np.float32)
    assert torch.equal(w.grad, emulated(x.numpy().T, ones, "int8x6"))
    assert not torch.equal(w.grad, native)


def test_products_of_a_training_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []

    def execute(call: Call, *_: object) -> Reason:
        trained.append(call.is_trained)
        return Reason.TOO_SMALL

    monkeypatch.setattr(below_autograd, "execute", execute)
    x, w = torch.randn(8, 64), torch.randn(64, 8, requires_grad=True)
    with modules_covered(takes_small=True), use(Context(scheme="int8x6", modules=Modules())):
        torch.mm(x, w).sum().backward()
        with torch.no_grad():
            torch.mm(x, w)
        torch.mm(x, x.T)
    assert trained == [True, True, False, False]


def test_sites_tell_lines_and_passes_apart() -> None:
    attention = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    x = torch.randn(1, 8, 32)
    trace = Trace()
    with (
        precision("int8x3", backend="reference"),
        use(replace(current(), trace=trace)),
    ):
        for _ in range(2):
            attention(x, x, x)[0].sum().backward()
    counts = {site.partition("/")[2]: record.calls for site, record in trace.sites.items()}
    forward = {site: n for site, n in counts.items() if ".backward" not in site}
    assert sum(forward.values()) == 8  # in and out projections, scores, weighted values, twice
    assert len(forward) == 2  # one for matrices, one for stacks
    assert len(counts) == 4
    module = module_name(__file__)
    assert all(site.startswith(f"{module}:") for site in trace.sites)


@pytest.mark.parametrize("kind", ["autocast", "half", "no context", "off"])
def test_others_are_pytorchs_own(kind: str) -> None:
    dtype = torch.bfloat16 if kind == "half" else torch.float32
    a, b = torch.randn(8, 64).to(dtype), torch.randn(64, 8).to(dtype)
    inside = Context() if kind == "no context" else Context(scheme="native", modules=Modules())
    if kind in ("autocast", "half"):
        inside = Context(scheme="int8x1", backend="reference", modules=Modules())
    native = torch.mm(a, b)
    if kind == "autocast":
        with torch.autocast("cpu", dtype=torch.bfloat16):
            native = torch.mm(a, b)
    cast = torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind == "autocast")
    with modules_covered(takes_small=True), use(inside), cast:
        assert torch.equal(torch.mm(a, b), native)


SITE = "m:f/mm~000000#0"
CALLS = {
    "linear": lambda: (F.linear, (torch.randn(2, 4, 64), torch.randn(16, 64), torch.randn(16)), {}),
    "addmm": lambda: (
        torch.addmm,
        (torch.randn(8, 4), torch.randn(8, 32), torch.randn(32, 4)),
        {"beta": 2.0},
    ),
    "einsum": lambda: (torch.einsum, ("ij,jk->ki", torch.randn(8, 32), torch.randn(32, 4)), {}),
    "method": lambda: (torch.randn(8, 32).mm, (torch.randn(32, 4),), {}),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_rewritten_call_has_its_own_scheme_and_site(name: str) -> None:
    native, operands, named = CALLS[name]()
    trace = Trace()
    with modules_covered(takes_small=True), use(Context(trace=trace)):
        rough, fine = (
            torch_call(
                *operands, native=native, site=SITE, scheme=scheme, backend="reference", **named
            )
            for scheme in ("int8x1", "int8x6")
        )
        plain = native(*operands, **named)
    exact = native(*operands, **named)
    assert torch.equal(plain, exact)  # no call in rewritten code, in a context without modules
    assert 1e-4 < (rough - exact).norm() / exact.norm() < 0.1
    torch.testing.assert_close(fine, exact)
    assert list(trace.sites) == [SITE]
    assert trace.sites[SITE].schemes == {"int8x1": 1, "int8x6": 1}


def test_the_backward_pass_of_a_rewritten_call_has_its_scheme() -> None:
    x, w = torch.randn(8, 64), torch.randn(16, 64, requires_grad=True)
    trace = Trace()
    with modules_covered(takes_small=True), use(Context(trace=trace)):
        y = torch_call(x, w, native=F.linear, site=SITE, scheme="int8x3", backend="reference")
        y.sum().backward()
    assert {site: set(record.schemes) for site, record in trace.sites.items()} == {
        SITE: {"int8x3"},
        SITE.replace("#", ".backward#"): {"int8x3"},
    }


def twice_backward(product: Any, xs: Any, w: Any) -> Any:
    w = w.clone().requires_grad_()
    loss = product(xs, w).tanh().sum()
    (gradient,) = torch.autograd.grad(loss, w, create_graph=True)
    return torch.autograd.grad(gradient.square().sum(), w)[0]


def checkpointed(product: Any, xs: Any, w: Any, **options: Any) -> Any:
    w = w.clone().requires_grad_()
    checkpoint = torch.utils.checkpoint.checkpoint
    checkpoint(lambda w: product(xs, w).tanh(), w, **options).sum().backward()
    return w.grad


def forward_mode(product: Any, xs: Any, w: Any) -> Any:
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(w, w.cos())
        return torch.autograd.forward_ad.unpack_dual(product(xs, dual)).tangent


func = torch.func
TRANSFORMED = {
    "vmap": lambda p, xs, w: func.vmap(p, (0, None))(xs, w),
    "vmap of both": lambda p, xs, w: func.vmap(p)(xs, torch.stack([w, -w, 2 * w])),
    "vmap of vectors": lambda p, xs, w: func.vmap(func.vmap(p, (0, None)), (0, None))(xs, w),
    "grad": lambda p, xs, w: func.grad(lambda w: p(xs, w).square().sum())(w),
    "grad of samples": lambda p, xs, w: func.vmap(
        func.grad(lambda w, x: p(x, w).square().sum()), (None, 0)
    )(w, xs),
    "jacrev": lambda p, xs, w: func.jacrev(lambda w: p(xs, w).tanh())(w),
    "jvp": lambda p, xs, w: func.jvp(lambda w: p(xs, w).tanh(), (w,), (w.cos(),))[1],
    "hessian": lambda p, xs, w: func.hessian(lambda w: p(xs, w).tanh().sum())(w[:, :2]),
    "forward mode": forward_mode,
    "twice backward": twice_backward,
    "checkpoint": lambda *given: checkpointed(*given, use_reentrant=False),
    "checkpoint, reentrant": lambda *given: checkpointed(*given, use_reentrant=True),
}
PRODUCTS = {
    "operator": lambda x, w: x @ w,
    "linear": lambda x, w: F.linear(x, w.T),
    "einsum": lambda x, w: torch.einsum("...j,jk->...k", x, w),
    "rewritten": lambda x, w: mixpert_py.matmul(x, w, site=SITE),
    "rewritten call": lambda x, w: torch_call(x, w.T, native=F.linear, site=SITE),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("of", PRODUCTS)
@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformed_products_take_the_scheme(name: str, of: str) -> None:
    function, xs, w = TRANSFORMED[name], torch.randn(3, 4, 16), torch.randn(16, 8)
    native = function(PRODUCTS[of], xs, w)
    with precision("int8x3", backend="reference"):
        ours = function(PRODUCTS[of], xs, w)
    torch.testing.assert_close(ours, native, rtol=1e-2, atol=1e-2)
    assert not torch.equal(ours, native)


def test_a_plan_may_name_the_backward_pass() -> None:
    layer, x = torch.nn.Linear(64, 16), torch.randn(8, 64, requires_grad=True)

    def schemes(plan: Plan | None) -> dict[str, set[str]]:
        trace = Trace()
        context = Context(plan=plan, backend="reference", trace=trace, modules=Modules())
        with modules_covered(takes_small=True), use(context):
            layer(x).sum().backward()
        return {site: set(record.schemes) for site, record in trace.sites.items()}

    forward, backward = schemes(None)
    assert backward == forward.replace("#", ".backward#")
    text = f'[[site]]\nid = "{forward}"\nscheme = "native"\n[[site]]\nid = "{backward}"\n'
    plan = plan_file.loads(text + 'scheme = "int8x3"\n')
    assert schemes(plan) == {forward: {"native"}, backward: {"int8x3"}}


PROGRAM = """
from importlib.util import find_spec
assert find_spec("torch")
import torch
from torch.nn import functional as F
from mixpert_py.runtime.modules import is_in_place
few, many = torch.zeros(8, 8), torch.zeros(1024, 512)
F.linear(few, few)
torch.zeros(8, 8).mm(few)
torch.addmm(few, torch.eye(8).to_sparse(), few)
register = torch.nn.modules.module.register_module_parameter_registration_hook
register(lambda module, name, parameter: None)

JAGGED = torch.jagged
def compiled(layer, x):
    return torch.compile(lambda y: layer(y), backend="eager", fullgraph=True)(x)

print(is_in_place())
{later}
print(is_in_place())
"""


# A module may be made, or come whole out of a file.
LOADED = "torch.load('m.pt', weights_only=False)(torch.zeros({rows}, 2000))"
WIDE = "torch.nn.Linear(1024, 8192)"
MANY_LAYERS = f"torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(9)], {WIDE})"
NO_GRAD = "with torch.no_grad(): "


@pytest.mark.parametrize(
    ("later", "is_covered"),
    [
        (WIDE, False),
        (f"{WIDE}(torch.zeros(1024, 1024))", True),
        (f"{WIDE}(torch.zeros(64, 1024))", False),
        (f"{MANY_LAYERS}(torch.zeros(1024, 1024))", False),
        (f"torch.nn.Sequential(torch.nn.Embedding(5000, 1024), {WIDE})(torch.arange(1024))", True),
        ("torch.nn.Linear(1024, 1024)(torch.zeros(1024, 1024))", False),
        (f"{NO_GRAD}torch.nn.Linear(1024, 1024)(torch.zeros(1024, 1024))", True),
        (f"{NO_GRAD}torch.nn.Linear(512, 513)(many[:512])", False),
        (f"{NO_GRAD}torch.nn.ReLU()(torch.zeros(2048, 1025))", False),
        (f"torch.backends.cuda.matmul.allow_tf32 = True\n{WIDE}(torch.zeros(1024, 1024))", False),
        (
            "layer = torch.nn.TransformerEncoderLayer(1024, 16, batch_first=True).eval()\n"
            f"{NO_GRAD}layer(torch.zeros(2, 1024, 1024))",
            True,
        ),
        (LOADED.format(rows=2000), True),
        (LOADED.format(rows=8), False),
        ("lazy = torch.nn.LazyLinear(2000)\nfor _ in 0, 1: lazy(torch.zeros(2000, 2000))", True),
        # Products that are not on a GPU take no scheme, and PyTorch has its kernels back.
        ("F.linear(many, many)", False),
        ("torch.einsum('ij,kj', many, many)", False),
        ("torch.nn.Linear(8, 8, bias=False)(few)\ntorch.nn.Conv2d(64, 600, 3)", False),
        ("torch.nn.ParameterList([torch.nested.nested_tensor([few, few], layout=JAGGED)])", False),
        ("compiled(torch.nn.Linear(8, 8), few)", False),
        ("compiled(torch.nn.Linear(8, 8), many[:, :8])", False),
    ],
)
def test_a_program_is_covered_from_its_first_module_or_product_that_may_gain_on(
    later: str, is_covered: bool, tmp_path: Path
) -> None:
    torch.save(torch.nn.Linear(2000, 2000), tmp_path / "m.pt")
    assert covered(PROGRAM.format(later=later), tmp_path) == f"False\n{is_covered}\n"


def covered(program: str, folder: Path, *options: str) -> str:
    """What a program prints under `mixpert run`."""
    script = folder / "p.py"
    script.write_text(program, "utf-8")
    command = [sys.executable, "-m", "mixpert_py", "run", *options, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


WATCHED = """
import warnings
import torch
from torch._dynamo.testing import CompileCounter
layer, x = torch.nn.Linear(1024, 1024), torch.zeros(64, 1024)
nested = torch.nested.nested_tensor([x, x[:8]])
with warnings.catch_warnings():
    warnings.simplefilter("error", torch.jit.TracerWarning)
    print(layer(nested).size(0), torch.jit.trace(layer, x)(x[:8]).shape)
counter = CompileCounter()
def compile(model, **options):
    return torch.compile(model, backend=counter, fullgraph=True, **options)
model = compile(layer, dynamic=True)
for rows in 64, 8, 9:
    model(torch.zeros(rows, 1024))
print(counter.frame_count)
for number in range(9):
    class Model(torch.nn.Linear):
        pass
    Model.forward = eval(f"lambda self, x: x @ self.weight + {number}")
    compile(Model(1024, 1024))(x)
print(counter.frame_count)
"""


def test_watched_calls_are_traced_and_compiled_as_pytorchs_own_are(tmp_path: Path) -> None:
    assert covered(WATCHED, tmp_path) == "2 torch.Size([8, 1024])\n1\n10\n"


PROFILED = """
import torch
from torch.profiler import ProfilerActivity, profile
layer = torch.nn.Linear(1024, 1024)
with profile(activities=[ProfilerActivity.CPU], with_modules=True, with_stack=True) as profiled:
    layer(torch.zeros(64, 1024))
print(any("Linear" in event.key for event in profiled.key_averages()))
"""


def test_the_first_call_of_a_module_can_be_profiled(tmp_path: Path) -> None:
    assert covered(PROFILED, tmp_path) == "True\n"


LOOKED_THROUGH = f"""
import torch
class Model(torch.nn.Sequential):
    looks = 0
    def modules(self):
        self.looks += 1
        return super().modules()
model = Model({MANY_LAYERS})
for rows in 1024, 1025, 1026:
    model(torch.zeros(rows, 1024))
print(model.looks)
"""


def test_a_model_that_does_not_gain_is_looked_through_once(tmp_path: Path) -> None:
    assert covered(LOOKED_THROUGH, tmp_path) == "1\n"


DECODED = f"""
import torch
from mixpert_py.runtime.modules import is_in_place
wide, few = torch.nn.Linear(1024, 1024), torch.nn.Linear(8, 8)
for has_gradient in (False, True):
    with torch.set_grad_enabled(has_gradient):
        for rows in (1024, 8, 1024):
            wide(torch.zeros(rows * 4, 1024) if rows > 8 else torch.zeros(rows, 1024))
            print(is_in_place())
            for _ in range({MOST_NATIVE} + 2):
                few(torch.zeros(8, 8))
            print(is_in_place())
"""


def test_kernels_are_replaced_while_products_without_a_gradient_may_take_a_scheme(
    tmp_path: Path,
) -> None:
    found = covered(DECODED, tmp_path, "--backend", "reference").split()
    inference, training = found[:6], found[6:]
    assert inference == ["True", "False", "False", "False", "True", "False"]
    assert training == ["True"] * 6


TRIED = """
import torch
from mixpert_py.runtime.context import current
from mixpert_py.runtime.modules import is_in_place, on_host
from mixpert_py.runtime.products.tensors import torch_call
many = torch.zeros(1024, 512)

def known():
    torch_call(many, many, native=torch.nn.functional.linear, site="m:f/linear~0#0")
    return is_in_place(), len(current().known)

print(known(), known())
torch.nn.functional.linear(many, many)
with on_host():
    many = torch.zeros(1024, 513)
    print(known())
"""


def test_kernels_stay_replaced_if_a_product_of_a_first_call_may_take_a_scheme() -> None:
    done = subprocess.run([sys.executable, "-c", TRIED], capture_output=True, text=True)
    assert done.stdout == "(False, 1) (False, 1)\n(True, 1)\n", done.stderr


def test_a_kernel_that_the_program_has_replaced_stays() -> None:
    theirs = torch.library.Library("aten", "IMPL")
    theirs.impl("addmm", lambda c, a, b, **factors: c + 1, "CPU")
    x = torch.zeros(2, 2)

    def covered() -> Any:
        with precision("int8x6", backend="reference"):
            assert not is_in_place()
            return torch.addmm(x, x, x)

    try:
        with pytest.warns(UserWarning, match="stay native: .*kernel"):
            found = covered()
        assert torch.equal(found, x + 1)
    finally:
        theirs._destroy()
        modules._state.has_warned = False
    with precision("int8x1", backend="reference"):
        assert torch.equal(torch.addmm(x, x, x), x)


COMPILED = """
import torch
from torch.nn import functional as F
x = torch.arange(4.0).reshape(2, 2)

class Net(torch.nn.Module):
    def forward(self, x):
        y = (x @ x).relu() + F.linear(x, x)
        return torch.einsum("ij,jk->ik", y, torch.matmul(x, x)) - 1

net = Net()
compiled = torch.compile(net, backend="eager")
print(all(torch.equal(compiled(k * x), net(k * x)) for k in (1, 2, 3)))
"""


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("way", ["run", "written"])
def test_compiled_functions_have_rewritten_calls(tmp_path: Path, way: str, is_first: bool) -> None:
    before = "import numpy as np\nnp.eye(2) @ np.eye(2)\n" if is_first else ""
    (tmp_path / "p.py").write_text(before + COMPILED, "utf-8")
    command = [sys.executable, "-m", "mixpert_py", "run", "p.py"]
    if way == "written":
        subprocess.run([*command[:3], "rewrite", "-w", "p.py"], cwd=tmp_path, check=True)
        command = [sys.executable, "p.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 4, 5), (3, 5, 2)),
        ((1, 4, 5), (3, 5, 2)),
        ((3, 4, 5), (5, 2)),
        ((3, 4, 5), (5,)),
        ((2, 3, 4, 5), (2, 3, 5, 2)),
        ((3, 4, 5), (3, 4, 5)),
    ],
    ids=str,
)
def test_native_stacks_have_pytorchs_bits_gradients_and_errors(left: Any, right: Any) -> None:
    operands = [torch.randn(*shape, requires_grad=True) for shape in (left, right)]

    def made(product: Any) -> list[Any]:
        try:
            value = product(*operands)
        except RuntimeError as error:
            return [str(error)]
        gradients = torch.autograd.grad(value.sum(), operands)
        return [x.tolist() for x in (value, *gradients)]

    wanted = made(torch.matmul)
    with use(Context(modules=Modules())):
        for _ in range(3):
            assert made(lambda a, b: mixpert_py.matmul(a, b, site="s")) == wanted
            ours = partial(mixpert_py.torch_matmul, site="t", native=torch.matmul)
            assert made(ours) == wanted


def test_a_cache_that_grows_evicts_no_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signatures, "MOST", 8)
    q = torch.ones(1, 16, 1, 64)
    with use(Context(modules=Modules())) as context:
        context.known["decision"] = signatures.NATIVE
        for size in range(200, 300, 5):
            scores = mixpert_py.matmul(q, torch.ones(1, 16, 64, size), site="s")
            assert torch.equal(scores, torch.full((1, 16, 1, size), 64.0))
        assert "decision" in context.known


@pytest.mark.parametrize(
    ("words", "shapes"),
    [
        ("ij,jk->ki", [(4, 5), (5, 2)]),
        ("bij,bjk,bkl->bil", [(3, 4, 5), (3, 5, 2), (3, 2, 6)]),
        ("ii->i", [(4, 4)]),
    ],
)
@pytest.mark.parametrize("has_gradient", [False, True])
def test_native_einsums_have_pytorchs_bits(words: str, shapes: Any, has_gradient: bool) -> None:
    operands = [torch.randn(*shape, requires_grad=has_gradient) for shape in shapes]
    wanted = torch.einsum(words, *operands)
    for _ in range(3):
        found = torch_call(words, *operands, native=torch.einsum, site="e")
        assert torch.equal(found, wanted)
        assert found.stride() == wanted.stride()
        assert found.requires_grad is has_gradient


def test_native_einsums_follow_the_order_that_pytorch_is_asked_for() -> None:
    settings = torch.backends.opt_einsum
    if not settings.is_available():
        pytest.skip("opt_einsum is not installed")
    operands = [torch.randn(*shape) for shape in ((3, 40), (40, 50), (50, 2))]
    for is_enabled in (True, False, True):
        with settings.flags(enabled=is_enabled):
            wanted = torch.einsum("ij,jk,kl->il", *operands)
            for _ in range(3):
                found = torch_call("ij,jk,kl->il", *operands, native=torch.einsum, site="o")
                assert torch.equal(found, wanted)
