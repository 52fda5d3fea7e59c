"""Small models that are trained eager and compiled, natively and under a scheme.

On the processor the reference backend makes the products, and `aot_eager` compiles; on a GPU it is
Inductor. EVERY_CHECK=1 trains all of them on the processor, too.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from mixpert_py import compiled, precision
from mixpert_py.runtime.context import SchemeUse, current, use
from mixpert_py.runtime.modules import on_host
from tests.every_check import some

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
F, nn, randn = torch.nn.functional, torch.nn, torch.randn

SCHEME = "faithful"
BACKENDS = {"cpu": "reference", "cuda": "cuda"}  # named, so that small products take the scheme
STEPS = 4
N, D, S, C, WORDS = 64, 64, 16, 8, 96  # rows, features, positions, classes, words known
WIDTHS = {
    "hidden_size": D,
    "intermediate_size": D,
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
}

Build = Callable[[], Any]  # a model and its inputs


class Net(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, loss: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.loss = loss

    def forward(self, *inputs: Any) -> Any:
        return self.loss(self, *inputs)


def dense(*widths: int, between: Callable[[], Any] = nn.Tanh) -> Any:
    """Linear layers, and something between each two of them."""
    layers = [it for pair in pairwise(widths) for it in (nn.Linear(*pair), between())]
    return layers[0] if len(widths) == 2 else nn.Sequential(*layers[:-1])


def model(loss: Callable[..., Any], *inputs: Any, **parts: Any) -> Build:
    """inputs: shapes, or functions that make them. parts: widths of layers, or functions."""
    return lambda: (
        Net(
            loss,
            **{name: dense(*it) if isinstance(it, tuple) else it() for name, it in parts.items()},
        ),
        *(randn(it) if isinstance(it, tuple) else it() for it in inputs),
    )


def classifier(body: Any, *shape: int, of: Callable[[Any], Any] = lambda y: y) -> Build:
    """A model that learns classes. of: makes the features of the body's result."""
    return model(
        lambda net, x, goal: F.cross_entropy(net.head(of(net.body(x))), goal),
        shape,
        lambda: labels(shape[0]),
        body=body,
        head=(D, C),
    )


def labels(count: int = N, among: int = C) -> Any:
    return torch.randint(among, (count,))


def words(*shape: int) -> Callable[[], Any]:
    return lambda: torch.randint(WORDS, shape)


def mean_square(x: Any, y: Any = 0.0) -> Any:
    return (x - y).square().mean()


def heads(x: Any) -> Any:
    """A sequence's features, parted among heads of attention."""
    return x.unflatten(-1, (4, -1)).transpose(1, 2)


def attention(net: Any, x: Any) -> Any:
    q, k, v = map(heads, net.qkv(x).chunk(3, -1))
    weights = torch.einsum("bhqd,bhkd->bhqk", q, k).div(4).softmax(-1)
    return mean_square(net.out(torch.einsum("bhqk,bhkd->bqhd", weights, v).flatten(2)), x)


def causal(net: Any, tokens: Any) -> Any:
    """The decoder's own words are its vectors: tied weights."""
    x = net.embedding(tokens[:, :-1])
    q, k, v = map(heads, net.qkv(x).chunk(3, -1))
    x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    logits = F.linear(x + net.mlp(x), net.embedding.weight)
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def gaussian_process(net: Any, x: Any, y: Any) -> Any:
    x = net.features(x)
    square = x.square().sum(1)
    kernel = torch.exp((2 * x @ x.T - square[:, None] - square) / (2 * D))
    root = torch.linalg.cholesky(kernel + torch.eye(N, device=x.device, dtype=x.dtype))
    return root.diagonal().log().mean() + mean_square(
        torch.linalg.solve_triangular(root, y[:, None], upper=False)
    )


def hugging_face(name: str, kind: str = "ForCausalLM", **options: Any) -> Build:
    """A model of words, which are also what it is to say."""

    def build() -> Any:
        reason = "transformers is not installed"
        library: Any = pytest.importorskip("transformers", reason=reason)
        config = getattr(library, f"{name}Config")(vocab_size=WORDS, **options)
        body = getattr(library, name + kind)(config).eval()  # without dropout
        return Net(lambda net, x: net.body(input_ids=x, labels=x).loss, body=body), words(4, S)()

    return build


ROWS, SEQUENCE = (N, D), (4, S, D)
MODELS: dict[str, Build] = {
    "MLP": classifier(lambda: dense(D, D, D, between=nn.GELU), N, D),
    "attention": model(attention, SEQUENCE, qkv=(D, 3 * D), out=(D, D)),
    "LSTM": classifier(lambda: nn.LSTM(D, D), S, 4, D, of=lambda y: y[0].mean(1)),
    "transformer encoder": classifier(
        lambda: nn.TransformerEncoderLayer(D, 4, D, 0.0), *SEQUENCE, of=lambda y: y.mean(1)
    ),
    "language model, tied weights": model(
        causal, words(4, S), embedding=lambda: nn.Embedding(WORDS, D), qkv=(D, 3 * D), mlp=(D, D, D)
    ),
    "bilinear": model(
        lambda net, x, y: mean_square(net.last(net.pair(x, y)) / D),
        *(ROWS, ROWS),
        pair=lambda: nn.Bilinear(D, D, D),
        last=(D, 2),
    ),
    "Gaussian process": model(gaussian_process, ROWS, (N,), features=(D, D, D)),
    "BERT": hugging_face("Bert", "ForMaskedLM", **WIDTHS),
    "GPT-2": hugging_face("GPT2", "LMHeadModel", n_embd=D, n_layer=1, n_head=4),
}


def losses(net: Any, call: Any, inputs: tuple[Any, ...]) -> Any:
    """The losses of a few steps of training. call: the model or its compiled form."""
    start = copy.deepcopy(net.state_dict())
    descent = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    found = []
    for _ in range(STEPS):
        loss = call(*inputs)
        descent.zero_grad()
        loss.backward()
        descent.step()
        found.append(loss.item())
    net.load_state_dict(start)
    return np.array(found)


@pytest.fixture
def fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    compiled.follow()
    is_allowed, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, False
    yield
    torch.backends.cudnn.allow_tf32 = is_allowed


PLACES = [
    *(("cpu", name) for name in some(MODELS, 2)),
    *(pytest.param("cuda", name, marks=pytest.mark.gpu) for name in MODELS),
]


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(("place", "name"), PLACES)
def test_a_model_is_trained_as_in_fp32(place: str, name: str) -> None:
    """The errors of its losses against FP64's are within four times the largest native ones."""
    net, *inputs = MODELS[name]()
    net, inputs = net.to(place), [x.to(place) for x in inputs]
    exact = losses(
        *(wide := copy.deepcopy(net).double(), wide),
        tuple(x.double() if x.is_floating_point() else x for x in inputs),
    )
    assert exact[-1] != exact[0]
    call = torch.compile(net, backend="aot_eager" if place == "cpu" else "inductor")
    natively = [np.abs(losses(net, it, inputs) - exact).max() for it in (net, call)]
    allowed = 4 * max(natively) + 1e-6 * np.abs(exact).max()
    for ours in (net, call):
        uses = SchemeUse(SCHEME)
        with ExitStack() as stack:
            if place == "cpu":
                stack.enter_context(on_host())
            stack.enter_context(use(replace(current(), uses=uses)))
            stack.enter_context(precision(SCHEME, backend=BACKENDS[place]))
            assert np.abs(losses(net, ours, inputs) - exact).max() <= allowed
        assert uses.is_taken
