"""Random products against FP64, as `mixpert bench products` makes them: none beyond its bound."""

from mixpert_py.bench.products.sweep import State
from mixpert_py.bench.soak.verdict import Verdict


def verdict(state: State, count: int) -> Verdict:
    """Of a sweep that is to have done `count` products."""
    emulated = sum(times for name, times in state.ran.items() if not name.startswith("native"))
    return Verdict(
        "products",
        f"{state.next:,} random products"
        + (f" of {state.kinds} kinds" if state.kinds else "")
        + f", {emulated:,} of them emulated, against FP64"
        + ("" if state.next >= count else f" (of {count:,})"),
        f"{len(state.failures)} beyond the bound of their scheme",
        not state.failures and state.next >= count,
        on_gpu=state.backend == "cuda",
        figures={
            "ran": dict(sorted(state.ran.items(), key=lambda item: -item[1])),
            "seconds": round(state.seconds),
            "largest": state.largest,
            "kinds": state.kinds,
            "failures": state.failures[:20],
        },
    )
