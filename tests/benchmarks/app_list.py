"""The applications that are measured: which sample, at what size, and what it is judged by."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Size = Literal["small", "paper"]


@dataclass(frozen=True, slots=True)
class App:
    """A sample that is measured as a benchmark.

    judged: how many of the first values that its `work` returns are held against float64's. budget:
    of a program that refines its values: errors below it are alike, and a tuned plan's has to be,
    whatever budget was asked for. host: arguments with which it takes ten seconds or more on the
    processor; empty: it is not measured there.
    """

    name: str
    sample: str
    small: str
    paper: str
    judged: int = 1
    budget: float | None = None
    host: str = ""

    def arguments(self, size: Size) -> tuple[str, ...]:
        return tuple((self.small if size == "small" else self.paper).split())

    def host_arguments(self, size: Size) -> tuple[str, ...]:
        """The command line of the NumPy program, which computes in float64."""
        return tuple((f"{self.small} --dtype float64" if size == "small" else self.host).split())


APPS: Mapping[str, App] = {
    app.name: app
    for app in (
        App(
            "knn",
            "knn",
            "--dtype float32 --size 300 --asked 128 --width 64 --kinds 8",
            "--dtype float32 --size 16384 --asked 16384 --width 4096",
            host="--size 10240 --asked 10240 --width 49152 --neighbours 3",
        ),
        App(
            "kmeans",
            "kmeans",
            "--dtype float32 --size 512 --width 64 --clusters 16",
            "--dtype float32 --size 65536 --width 2048 --clusters 4096",
            judged=2,
        ),
        App(
            "mlp",
            "perceptron",
            "--size 128 --width 64 --classes 16",
            "--size 16384 --width 8192 --classes 1024",
        ),
        App(
            "cholesky",
            "cholesky",
            "--dtype float32 --size 96 --block 48 --strip 24",
            "--dtype float32 --size 40960 --block 2048 --strip 512",
            host="--size 49152 --block 4096 --strip 256",
        ),
        App(
            "hpl-ai",
            "hpl_ai",
            "--size 96 --block 32",
            "--size 32768 --block 2048",
            # What refinement is for: of the solution no less is asked than of a float64 one.
            budget=1e-12,
        ),
        App(
            "comet",
            "comet",
            "--size 64 --people 1024 --pairs 8",
            "--size 4096 --people 65536 --pairs 200",
        ),
        App(
            "bert",
            "bert",
            "--size 1 --length 8 --checked 1",
            "--size 64 --length 512",
        ),
        App(
            "qkv",
            "qkv",
            "--size 256 --tokens 32",
            "--size 8192 --tokens 4096",
            judged=2,
        ),
        App(
            "pca",
            "pca",
            "--dtype float32 --random 256 64 --components 8 --iterations 4",
            "--dtype float32 --random 262144 4096 --components 512 --iterations 4",
            host="--random 98304 8192 --components 256 --iterations 3",
        ),
        App(
            "gp",
            "gp",
            "--dtype float32 --noise 1 --size 128 --asked 64 --channels 64",
            "--dtype float32 --length 0.3 --noise 3 --size 16384 --asked 32768",
            # The mean does not show what lowered products make of the variance.
            judged=2,
            host="--length 0.3 --noise 3 --size 32768 --asked 4096",
        ),
        App(
            "circuit",
            "circuit",
            "--size 8 --fused 4 --depth 2",
            "--size 26 --fused 11",
        ),
        App("batched16", "batched16", "--size 4 --steps 6", "--size 262144"),
    )
}
