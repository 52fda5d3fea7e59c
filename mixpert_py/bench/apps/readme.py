"""The part of the README that is made from the results of `mixpert bench apps`."""

from typing import Any

from mixpert_py.bench.apps import pictures, tables
from mixpert_py.bench.gemm.readme import PICTURES, machine_text
from mixpert_py.bench.gemm.tables import markdown

Record = dict[str, Any]

MADE = (
    "Measured by `mixpert bench apps --save` and `mixpert bench apps --host --save`, put here by "
    "`mixpert bench readme --into README.md`."
)


def part(result: Record) -> str:
    """Pictures, tables and where they were measured."""
    shown = []
    if result["apps"]:
        shown.append(
            pictures.markdown(pictures.BARS, "Speed-up of each application", PICTURES)
            + pictures.markdown(pictures.PLANE, "Accuracy against speed", PICTURES)
        )
        shown.append(markdown(tables.COLUMNS, tables.rows(result["apps"])))
        shown.append(
            "Milliseconds of GPU time of a program's work in cuBLAS FP32 through CuPy, and how many"
            " times as fast it is in TF32, rewritten without a plan (`faithful`), and under a plan"
            f" tuned for {result['apps'][0]['budget']:g}; relative Frobenius errors of its results"
            " against the program in float64."
        )
    if result["host"]:
        shown.append(markdown(tables.HOST, tables.host_rows(result["host"])))
        shown.append(
            f"NumPy programs, in float64, on {result['machine']['cores']} cores of"
            f" {result['machine']['cpu']}, and rewritten, transfers included, under plans tuned for"
            f" {result['host'][0]['budget']:g}."
        )
    shown.append(markdown(tables.TARGETS, tables.target_rows(result)))
    return "\n\n".join([*shown, f"{machine_text(result['machine'])} {MADE}"]) + "\n"
