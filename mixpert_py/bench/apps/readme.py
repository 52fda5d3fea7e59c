"""The parts of the pages that are made from the results of `mixpert bench apps`."""

from pathlib import Path
from typing import Any

from mixpert_py.bench import machine
from mixpert_py.bench.apps import pictures, run, tables
from mixpert_py.bench.gemm.readme import machine_text
from mixpert_py.bench.gemm.tables import markdown
from mixpert_py.bench.pictures import embedded

Record = dict[str, Any]

MADE = "Measured by `mixpert bench apps --save` and `mixpert bench apps --host --save`."


def kept_part(docs: str) -> str | None:
    """The part on programs, from the saved result; None without one. docs: the pictures' folder."""
    found = run.read(machine.RESULTS / run.NAME)
    return None if found is None else part(found, docs)


def numpy_sentence() -> str | None:
    """How many times as fast the NumPy programs of the saved result are; None without them."""
    found = run.read(machine.RESULTS / run.NAME)
    if found is None or not found["host"]:
        return None
    facts = found["machine"]
    gains = ", ".join(
        f"{record['name']} {record['speedup']:.1f}×"
        for record in found["host"]
        if "failed" not in record
    )
    return (
        f"NumPy programs in float64 on {facts['cores']} cores of {facts['cpu']}, rewritten, with "
        f"the products on one {facts['device']}, transfers included, under plans tuned for "
        f"{found['host'][0]['budget']:g}, {_host_date(found)}: {gains} as fast.\n"
    )


def _host_date(result: Record) -> str:
    """The day on which the NumPy programs ran, which is not always that of the others."""
    return str(result["host"][0].get("date", result["machine"]["date"]))


def draw(folder: Path) -> None:
    """Draw the pictures of the saved result into a folder."""
    found = run.read(machine.RESULTS / run.NAME)
    if found is not None and found["apps"]:
        pictures.draw(found["apps"], found["machine"]["device"], folder)


def part(result: Record, docs: str) -> str:
    """Pictures, tables and where they were measured."""
    shown = []
    if result["apps"]:
        device = result["machine"]["device"]
        speed = pictures.speed_alternative(result["apps"], device)
        accuracy = pictures.accuracy_alternative(result["apps"])
        shown.append(
            embedded(pictures.SPEED, speed, docs)
            + embedded(pictures.ACCURACY, accuracy, docs).rstrip()
        )
        shown.append(markdown(tables.COLUMNS, tables.rows(result["apps"])))
        shown.append(
            "Milliseconds of GPU time of a program's work in cuBLAS FP32 through CuPy, and how many"
            " times as fast it is in TF32, rewritten with `--fuse` without a plan (`faithful`), and"
            f" under a plan tuned for {result['apps'][0]['budget']:g}; relative Frobenius errors of"
            " its results against the program in float64."
        )
    if result["host"]:
        shown.append(markdown(tables.HOST, tables.host_rows(result["host"])))
        shown.append(
            f"NumPy programs, in float64, on {result['machine']['cores']} cores of"
            f" {result['machine']['cpu']}, and rewritten, transfers included, under plans tuned for"
            f" {result['host'][0]['budget']:g}: what such a program does beside its products, NumPy"
            " still does; relative Frobenius errors against the program as it was. Measured on"
            f" {_host_date(result)}."
        )
    shown.append(markdown(tables.TARGETS, tables.target_rows(result)))
    if missing := tables.left_out(result):
        shown.append(missing)
    return "\n\n".join([*shown, f"{machine_text(result['machine'])} {MADE}"]) + "\n"
