"""What the runs of a tuning are made with: how many at a time, BLAS threads, and GPUs."""

from dataclasses import dataclass

from mixpert_py import config
from mixpert_py.errors import DeviceError, MixPertError
from mixpert_py.execution import gpus
from mixpert_py.execution.dask import DaskCluster
from mixpert_py.execution.executor import Executor
from mixpert_py.execution.outputs import FILE_ENDINGS
from mixpert_py.launch.launcher import Program
from mixpert_py.tuning.wish import Wish

UNSOUND = (
    "runs at the same time would disturb each other's times; give each a GPU of its own, or let "
    "times be predicted (--backend reference), or leave --workers out"
)


@dataclass(frozen=True, slots=True)
class Resources:
    """runs: at a time. threads: of BLAS in every run. gpus: one for each run; none: all see all.

    cluster: where trials run.
    """

    runs: int
    threads: int
    gpus: tuple[str, ...] = ()
    cluster: DaskCluster | None = None

    def workers(self) -> Executor:
        return Executor(self.runs, self.threads, self.gpus, self.cluster)

    def require_sound(self, *, on_gpu: bool, predicted: bool) -> None:
        """Raise MixPertError where runs that share the cores would be timed."""
        if self.runs > 1 and not predicted and not (on_gpu and self.gpus):
            raise MixPertError(f"--workers {self.runs}: {UNSOUND}")


def resources(wish: Wish, program: Program, *, predicted: bool) -> Resources:
    """What a wish asks for. predicted: whether the times to go by are.

    Raises DeviceError if there are no GPUs for it, MixPertError where times would not be sound, or
    a cluster is of no use.
    """
    if wish.dask is not None:
        if not predicted:
            raise MixPertError(
                "--dask: times that are measured there say nothing here; let them be predicted "
                "(--backend reference)"
            )
        if any(name.endswith(FILE_ENDINGS) for name in wish.compare):
            raise MixPertError("--dask: files that a program writes stay there; compare variables")
        cluster = DaskCluster(wish.dask, program.path)
        return Resources(cluster.runs, cluster.threads, cluster=cluster)
    names = gpus.names(wish.backend)
    if wish.workers is None and not names:
        raise DeviceError("--workers gpus: there is no GPU that runs could use")
    runs = wish.workers or len(names)
    each = names[:runs] if 1 < runs <= len(names) else ()
    found = Resources(runs, config.blas_threads(runs), each)
    found.require_sound(on_gpu=True, predicted=predicted)  # before it is known whether it uses them
    return found
