"""Products in functions that `torch.compile` compiles: `backend`, and `follow` for other calls.

Inductor compiles as usual, with one more pass (`passes.torch_graphs`), which replaces products that
gain by the runtime's operators. The plan, scheme and backend in force during compilation decide. If
others are in force at a later call, the graph is compiled again for them.
"""

import contextlib
import copy
import hashlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import mixpert_py
from mixpert_py.runtime import modules
from mixpert_py.runtime.context import Context, Modules, current, use

if TYPE_CHECKING:
    from mixpert_py.passes.torch_graphs import GraphProduct

PASS = "post_grad_custom_pre_pass"  # the place in Inductor's settings: before its own fusions
COMPILER = "torch._dynamo"
# What of a context gives products their schemes.
CHOICES = attrgetter(
    *("scheme", "backend", "plan", "find_plan", "trace", "modules", "overrides_sites")
)

Graph = Any


def backend(
    model: Any, inputs: Any, *, mode: str | None = None, options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """Inductor with products by MixPert-Py: `torch.compile(net, backend="mixpert")`.

    mode, options: as of `torch.compile`.
    """
    torch: Any = sys.modules["torch"]
    inductor = torch._TorchCompileInductorWrapper(mode, options, None)
    return compiled(model, inputs, dict(inductor.config))


def follow() -> None:
    """Install the pass in every `torch.compile` with Inductor, now or when Inductor is imported."""
    modules.when_imported(COMPILER, _install)


def _install() -> None:
    """Replace the step from `torch.compile` to Inductor by `compiled`."""
    from mixpert_py.runtime.products import graphs

    graphs.follow()
    wrapper: Any = getattr(sys.modules["torch"], "_TorchCompileInductorWrapper", None)
    if wrapper is None or hasattr(wrapper, "_mixpert_original"):
        return
    wrapper._mixpert_original = wrapper.__call__

    def call(self: Any, model: Any, inputs: Any, **more: Any) -> Callable[..., Any]:
        patches = {**self.config, **(more.get("config_patches") or {})}
        return compiled(model, inputs, patches, is_asked=False)

    wrapper.__call__ = call


def compiled(
    model: Any, inputs: Any, patches: dict[str, Any], *, is_asked: bool = True
) -> Callable[..., Any]:
    """A graph compiled by Inductor with the pass, and again when the settings in force change.

    patches: Inductor settings. is_asked: whether the program names this backend; otherwise the pass
    is left out while PyTorch's own products are not covered.
    """
    from mixpert_py.runtime.products import graphs

    graphs.operators()  # code from PyTorch's caches calls them, too
    torch: Any = sys.modules["torch"]
    lock: Any = sys.modules[COMPILER].convert_frame.compile_lock  # under which Dynamo calls this
    again = torch.fx.GraphModule(model, copy.deepcopy(model.graph))
    tracing = torch._guards.TracingContext.try_get()
    stand_ins = [_stand_in(x, tracing) for x in inputs]  # inputs themselves would stay in memory
    known: list[tuple[Context, Callable[..., Any]]] = []
    caller = _program_line()

    def compile_for(context: Context, graph: Any, inputs: Any) -> Callable[..., Any]:
        from torch._inductor import config
        from torch._inductor.compile_fx import compile_fx

        others = patches.get(PASS) or getattr(config, PASS) or ()
        chained = others if isinstance(others, list | tuple) else (others,)
        ours = {PASS: _pass_class()(context, chained, caller)}
        is_covered = is_asked or context.modules is not None
        made: Callable[..., Any] = compile_fx(
            graph, inputs, config_patches={**patches, **(ours if is_covered else {})}
        )
        return made

    def compile_anew(context: Context) -> Callable[..., Any]:
        """Compile the graph for another context, unless it needs more than Dynamo knows."""
        graph = torch.fx.GraphModule(again, copy.deepcopy(again.graph))
        with torch._guards.tracing(tracing):
            function = compile_for(context, graph, stand_ins)
        env: Any = getattr(getattr(tracing, "fake_mode", None), "shape_env", None)
        extents = [at for at, x in enumerate(stand_ins) if isinstance(x, torch.SymInt)]
        try:
            needs = (
                env and extents and env.produce_guards_expression([stand_ins[at] for at in extents])
            )
        except (AssertionError, IndexError):  # of an extent that only a part of the graph knows
            return again  # type: ignore[no-any-return]
        if not needs:
            return function

        def guarded(*arguments: Any) -> Any:
            here = [arguments[at] for at in extents]
            return (function if env.evaluate_guards_expression(needs, here) else again)(*arguments)

        return guarded

    first = compile_for(current(), model, inputs)
    known.append((current(), first))

    def run(*arguments: Any) -> Any:
        context = current()
        for other, function in known:
            if other is context or CHOICES(other) == CHOICES(context):
                return function(*arguments)
        with lock:
            function = compile_anew(context)
        known.append((context, function))
        return function(*arguments)

    run.__dict__.update(getattr(first, "__dict__", {}))
    return run


def _stand_in(x: Any, tracing: Any) -> Any:
    """The fake tensor by which Dynamo traced an input: it knows which extents are fixed."""
    fake_mode = getattr(tracing, "fake_mode", None)
    if fake_mode is None or not isinstance(x, sys.modules["torch"].Tensor):
        return x
    known = tracing.tensor_to_context.get(x)
    if known is None:  # a fake tensor itself
        return x
    source = known.tensor_source
    return fake_mode.from_tensor(x, static_shapes=False, symbolic_context=known, source=source)


@cache
def _pass_class() -> type[Any]:
    """The base class of Inductor's passes; it exists after Inductor is imported."""
    from torch._inductor import custom_graph_pass

    base: Any = custom_graph_pass.CustomGraphPass
    knowing: Any = getattr(custom_graph_pass, "CustomInferenceAwareGraphPass", base)

    class ProductsPass(knowing):  # type: ignore[misc]
        """Replaces products by the runtime's operators, after the program's own passes."""

        def __init__(self, context: Context, chained: Sequence[Any], caller: str) -> None:
            self._context, self._chained, self._caller = context, chained, caller

        def __call__(self, graph: Graph, **inference: bool) -> None:
            for other in self._chained:
                other(graph, **(inference if isinstance(other, knowing) else {}))
            with use(self._context):
                _pass(graph, self._context, self._caller)

        def uuid(self) -> Any:
            """The key of compiled code in PyTorch's caches. Code with chosen schemes contains call
            sites, which the caches do not compare, so it has no key and is never found.
            """
            chained = [other.uuid() if isinstance(other, base) else None for other in self._chained]
            if self._context.has_choices() or not all(chained):
                return uuid4().hex
            return _version(), *chained

    return ProductsPass


@cache
def _version() -> str:
    """A hash of the files that decide which products are replaced."""
    from mixpert_py.passes import torch_graphs
    from mixpert_py.runtime import select, worth
    from mixpert_py.runtime.products import graphs

    files = [__file__, *(it.__file__ for it in (torch_graphs, graphs, select))]
    texts = b"".join(Path(file).read_bytes() for file in (*files, worth.__file__) if file)
    return hashlib.sha256(texts).hexdigest()


def _pass(graph: Graph, context: Context, caller: str) -> None:
    """Replace the products of a graph that gain. caller: the line of the program that calls it."""
    from mixpert_py.passes import torch_graphs
    from mixpert_py.runtime.products import graphs

    for product in list(torch_graphs.products(graph, _own_folders(), caller)):
        chosen = _choice(product, context)
        if chosen is None:
            continue
        torch_graphs.replace(graph, product, graphs.operators()[product.name], *chosen)


def _choice(product: "GraphProduct", context: Context) -> tuple[Any, ...] | None:
    """The site, scheme and backend of a product to replace, or None if it stays."""
    from mixpert_py.runtime.products import graphs, torch_sites

    given = product.settings
    site = torch_sites.backward_of(product.site) if product.is_backward else product.site
    scheme = (context.modules or Modules()).given(site)
    if scheme is None and not context.overrides_sites:
        scheme = given.get("scheme")
    if scheme is None:
        forward = None if given and not product.is_backward else product.site
        scheme = context.choice(site, forward=forward).scheme
    backend = given.get("backend") or context.backend
    if context.trace is None:
        a, b = (it.meta["val"] for it in product.operands)
        if scheme == "native" or not graphs.gains(product.name, a, b, scheme, backend):
            return None
    if not context.has_choices() and (scheme, backend) == (None, None):
        return "", None, None  # so that graphs of all files share what is compiled
    torch_sites.places.setdefault(
        site, torch_sites.Place(product.path, product.line, product.expression)
    )
    return site, scheme, backend


def _program_line() -> str:
    """The innermost line of the program in this thread, as in a stack trace; "" without one."""
    own, frame = (*_own_folders(), contextlib.__file__), sys._getframe().f_back
    while frame is not None and frame.f_code.co_filename.startswith(own):
        frame = frame.f_back
    if frame is None:
        return ""
    return "".join(traceback.format_tb(TracebackType(None, frame, frame.f_lasti, frame.f_lineno)))


@cache
def _own_folders() -> tuple[str, ...]:
    packages: tuple[Any, ...] = sys.modules["torch"], mixpert_py
    return tuple(os.path.join(os.path.dirname(package.__file__), "") for package in packages)
