"""PyTorch models in a program that never mentions MixPert: `python FILE NAME [MODE] [tf32]`.

NAME: mlp, gpt2 (inference), bert (training with AdamW) or small (training). MODE: as of
torch.compile; "eager" compiles nothing. Prints one line of JSON: milliseconds a step (median of
five bursts), the loss after the last step, seconds of the first step, graphs and graph breaks.
"""
# mypy: ignore-errors

import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn.functional import gelu


class Feed(nn.Module):
    """A normalised feed-forward layer with a residual sum."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(gelu(self.up(self.norm(x))))


def mlp(compiled):
    net = nn.Sequential(*[Feed(2048) for _ in range(4)]).cuda().eval()
    x = torch.randn(4096, 2048, device="cuda")
    call = compiled(net)

    def step():
        with torch.no_grad():
            return call(x).square().mean()

    return step


def gpt2(compiled):
    from transformers import GPT2Config, GPT2LMHeadModel

    net = GPT2LMHeadModel(GPT2Config(n_layer=12, n_embd=1024, n_head=16)).cuda().eval()
    ids = torch.randint(0, 30000, (8, 512), device="cuda")
    call = compiled(net)

    def step():
        with torch.no_grad():
            return call(ids, labels=ids).loss

    return step


def bert(compiled):
    from transformers import BertConfig, BertForMaskedLM

    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    net = BertForMaskedLM(BertConfig(num_hidden_layers=8, **none)).cuda()
    ids = torch.randint(0, 30000, (32, 256), device="cuda")
    return training(net, compiled(net), lambda call: call(ids, labels=ids).loss)


def small(compiled):
    layers = [part for _ in range(6) for part in (nn.Linear(256, 256), nn.GELU())]
    net = nn.Sequential(*layers).cuda()
    x = torch.randn(512, 256, device="cuda")
    return training(net, compiled(net), lambda call: call(x).square().mean())


def training(net, call, loss_of):
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(call)
        loss.backward()
        optimizer.step()
        return loss

    return step


def main(name: str, mode: str = "default", precision: str = "float32") -> None:
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    model = {"mlp": mlp, "gpt2": gpt2, "bert": bert, "small": small}[name]
    step = model(lambda net: net if mode == "eager" else torch.compile(net, mode=mode))
    begin = time.perf_counter()
    loss = step()
    torch.cuda.synchronize()
    first = time.perf_counter() - begin
    for _ in range(5):
        loss = step()
    count, times = 100 if name == "small" else 5, []
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            loss = step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / count)
    from torch._dynamo.utils import counters

    record = {
        "ms": 1e3 * statistics.median(times),
        "loss": f"{loss.item():.6g}",
        "first": first,
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": sum(counters["graph_break"].values()),
    }
    print(json.dumps(record))


if __name__ == "__main__":
    main(*sys.argv[1:])
