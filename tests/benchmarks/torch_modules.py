"""A decoder of nn.Linear and SDPA on a GPU, in FP32 and with its products covered.

Prints the milliseconds of an inference and of a training step by wall clock, waiting for the device
after each, the errors against FP64, and what the hook costs a product that stays native.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from statistics import median
from time import perf_counter
from typing import Any

import click

from mixpert_py.runtime.context import Modules, current, use
from mixpert_py.runtime.modules import modules_covered

WIDTH, HEADS, BATCH, LENGTH, BLOCKS = 2048, 16, 4, 1024, 2


def block(nn: Any) -> Any:
    """One block of the decoder."""

    class Block(nn.Module):  # type: ignore[misc]
        """Causal attention and a perceptron, each after a norm and beside a skip connection."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            parts = self.qkv(self.first(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
            y = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))
            return x + self.down(nn.functional.gelu(self.up(self.second(x))))

    return Block()


def milliseconds(step: Callable[[], Any], covered: bool, torch: Any, count: int = 20) -> float:
    """The median of a step, by wall clock, after some to warm up."""
    times = []
    inside = replace(current(), modules=Modules()) if covered else current()
    with modules_covered(takes_small=False) if covered else nullcontext(), use(inside):
        for _ in range(count + 5):
            torch.cuda.synchronize()
            start = perf_counter()
            step()
            torch.cuda.synchronize()
            times.append(perf_counter() - start)
    return 1e3 * median(times[5:])


@click.command()
def command() -> None:
    """A decoder of PyTorch's modules, in FP32 and with its products covered."""
    torch: Any = import_module("torch")
    nn = torch.nn
    torch.manual_seed(0)
    net = nn.Sequential(*(block(nn) for _ in range(BLOCKS))).cuda()
    x = torch.randn(BATCH, LENGTH, WIDTH, device="cuda")

    def infer() -> Any:
        with torch.no_grad():
            return net(x)

    def train() -> None:
        net.zero_grad()
        net(x).square().mean().backward()

    for name, step in (("inference", infer), ("training step", train)):
        native, covered = (milliseconds(step, it, torch) for it in (False, True))
        print(f"{name}: {native:.2f} → {covered:.2f} ms ({native / covered:.2f}×)")
    values = {}
    for name in ("FP32", "covered", "FP64"):
        if name == "FP64":
            net, x = net.double(), x.double()
        inside = replace(current(), modules=Modules() if name == "covered" else None)
        with modules_covered(takes_small=False), use(inside):
            output = infer()
            train()
        values[name] = output.double(), net[0].qkv.weight.grad.double().clone()
    for name in ("FP32", "covered"):
        errors = (
            ((a - b).norm() / b.norm()).item()
            for a, b in zip(values[name], values["FP64"], strict=True)
        )
        print(name, "error of output, of a gradient: {:.1e}, {:.1e}".format(*errors))
    a = torch.randn(64, 64, device="cuda")
    calls: tuple[Callable[[], Any], ...] = (lambda: torch.mm(a, a), lambda: torch.addmm(a, a, a))
    for function in calls:
        costs = []
        for covered in (False, True):
            with modules_covered(takes_small=False) if covered else nullcontext():
                laps = []
                for _ in range(30):
                    torch.cuda.synchronize()
                    start = perf_counter()
                    for _ in range(500):
                        function()
                    laps.append((perf_counter() - start) / 500)
                costs.append(1e6 * min(laps))
        print("a native call: {:.2f} → {:.2f} µs".format(*costs))


if __name__ == "__main__":
    command()
