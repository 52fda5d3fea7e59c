"""`precision`: one scheme for all products of a block."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from mixpert_py.runtime.backends import require_backend
from mixpert_py.runtime.context import Choice, Modules, SchemeUse, checked, current, use
from mixpert_py.runtime.modules import modules_covered
from mixpert_py.runtime.program_frames import warn


@contextmanager
def precision(scheme: str, *, backend: str | None = None) -> Iterator[None]:
    """Run every product inside under one scheme: in this thread or task, and in tasks begun here.

    It comes before every plan, and before schemes that comments, `accelerate`, `install` or
    `mixpert rewrite` have put at a call site; of several, the innermost counts. Only a call with a
    `scheme` and without a `site`, which a person wrote, keeps its own. Warns at the end if no
    product inside took the scheme.
    Raises PlanError for an unknown scheme or backend, DeviceError for an absent device.
    """
    checked(Choice(scheme))
    require_backend(backend)
    outer = current()
    backend = backend or outer.backend
    uses = SchemeUse(scheme, outer.uses)
    inner = replace(
        outer, scheme=scheme, backend=backend, overrides_sites=True, modules=Modules(), uses=uses
    )
    with modules_covered(takes_small=True), use(inner):
        yield
    why_not = uses.why_not()
    if not uses.has_products and scheme != "native":
        why_not = (
            "no product inside reached MixPert-Py; @mixpert_py.accelerate and `mixpert run` "
            "rewrite code"
        )
    if why_not is not None:
        warn(f"precision({scheme!r}): {why_not}")
