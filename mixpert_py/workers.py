"""Who runs the jobs of one program: a fork server, or a new process for each."""

from mixpert_py import config, fork_server, process
from mixpert_py.fork_server import ForkServer


class Workers:
    """Runs jobs, one at a time. may_fork: not where jobs use a GPU, whose kernels are kept warm
    otherwise. modules: what the fork server imports when it is started, with the first job for it.
    """

    def __init__(self, *, may_fork: bool) -> None:
        self.modules: tuple[str, ...] = ()
        self._may_fork = may_fork and fork_server.AVAILABLE
        self._server: ForkServer | None = None

    def run(self, job_file: str, limit: float | None, *, forked: bool) -> process.Ended:
        """Run a job, in a new process if nothing may be forked or the server was lost on the way.

        forked: whether it may be.
        """
        environment = config.child_environment()
        if forked and self._may_fork:
            if self._server is None:
                self._server = ForkServer(self.modules, environment)
            ended = self._server.run(job_file, limit)
            if ended is not None:
                return ended
            self._may_fork = False
        return process.run(process.python("mixpert_py.worker", job_file), environment, limit)
