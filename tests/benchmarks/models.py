"""PyTorch models, eager and compiled: PyTorch's FP32, the same under `mixpert run`, and TF32.

Each figure is a process of its own (`model_program`). All are run once before, several at a time,
so that what Inductor compiles is in its cache. `--save` replaces the saved rows of the given
models after each model, so that the models may be measured in several calls on one machine.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from mixpert_py.cli import main
from tests.benchmarks import machine
from tests.benchmarks.machine import table

PROGRAM = Path(__file__).with_name("model_program.py")
MODELS = {
    "mlp": "MLP, 4 × (2048, 8192), 4096 rows, inference",
    "gpt2": "Hugging Face GPT-2, 12 layers of 1024, 8 × 512 tokens, inference",
    "bert": "Hugging Face BERT, 8 layers of 768, 32 × 256 tokens, training with AdamW",
    "small": "6 × (Linear, GELU) of 256, batch 512, training with AdamW",
}
MODES = {"eager": "eager", "default": "compiled", "reduce-overhead": "compiled, CUDA graphs"}
VARIANTS = {"native": ("float32", ()), "ours": ("float32", ("-m", "mixpert_py", "run"))}
TF32 = {"tf32": ("tf32", ())}
AT_ONCE = 6  # processes that fill Inductor's cache
TIME_LIMIT = 300

Record = dict[str, Any]
Case = tuple[str, str, str]  # model, mode, variant


def cases(models: Sequence[str]) -> list[Case]:
    """What is run, variants of one model and mode one after another."""
    variants = {**VARIANTS, **TF32}
    return [
        (model, mode, variant)
        for model in models
        for mode in MODES
        for variant in variants
        if variant != "tf32" or (model in ("gpt2", "bert") and mode != "reduce-overhead")
    ]


def run(case: Case, folder: Path) -> Record:
    model, mode, variant = case
    precision, words = {**VARIANTS, **TF32}[variant]
    command = [sys.executable, *words, str(folder / PROGRAM.name), model, mode, precision]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / variant)}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=TIME_LIMIT, cwd=folder
    )
    record: Record = {"model": model, "mode": mode, "variant": variant}
    if done.returncode:
        return {**record, "problem": done.stderr.strip().splitlines()[-1]}
    return {**record, **json.loads(done.stdout.splitlines()[-1])}


def markdown(result: Record) -> str:
    """A row for each model and mode: milliseconds a step, the ratio, and losses."""
    rows = {(row["model"], row["mode"], row["variant"]): row for row in result["rows"]}
    lines = []
    for model, title in MODELS.items():
        for mode, words in MODES.items():
            native, ours = (rows.get((model, mode, it), {}) for it in ("native", "ours"))
            if "ms" in native and "ms" in ours:
                tf32 = rows.get((model, mode, "tf32"))
                times = (f"{it['ms']:.3g}" if it else "" for it in (native, ours, tf32))
                losses = (it["loss"] if it else "" for it in (native, ours, tf32))
                ratio = f"{native['ms'] / ours['ms']:.2f}×"
                lines.append([title, words, *times, ratio, *losses])
                title = ""
    columns = ["model", "", "FP32, ms", "`mixpert run`", "TF32", "gain"]
    columns += ["loss: FP32", "`mixpert run`", "TF32"]
    return (
        f"{table(columns, lines)}\n\nPyTorch {result['torch']}. {machine.text(result['machine'])}\n"
    )


@click.command()
@click.option("--model", "models", multiple=True, type=click.Choice([*MODELS]), default=[*MODELS])
@machine.save_option
def command(models: Sequence[str], save: bool) -> None:
    """PyTorch models, eager and compiled, natively and under `mixpert run`."""
    import torch

    found = cases(models)
    result: Record = {
        "machine": machine.facts_of_gpu(),
        "torch": torch.__version__.partition("+")[0],
    }
    result["rows"] = (machine.load("models") or {"rows": []})["rows"] if save else []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(PROGRAM, folder)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda case: run(case, folder), [it for it in found if it[1] != "eager"]))
        for model in models:
            rows = [run(case, folder) for case in found if case[0] == model]
            others = [row for row in result["rows"] if row["model"] != model]
            result["rows"] = others + rows
            machine.finish("models", result, save, markdown)


if __name__ == "__main__":
    main(command, "python -m tests.benchmarks.models")
