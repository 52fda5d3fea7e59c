"""What of a program is compared, and how."""

from dataclasses import dataclass

from mixpert_py.launch.launcher import Program
from mixpert_py.passes.dataflow.graph import Dependencies
from mixpert_py.runs import printed
from mixpert_py.runs.worker import SINKS
from mixpert_py.runs.written_file import ENDINGS
from mixpert_py.tuning.judge import Judge
from mixpert_py.tuning.limits import Limits


@dataclass(frozen=True, slots=True)
class Comparison:
    """A judge, and what it is given.

    variables: of the main module, asked for by the user; files: of numbers, which the program
    writes; stdout: the numbers that it prints. Where it observes values itself, those are compared
    too. Where there is none of all these: the variables `names`, else the results of the call sites
    `sinks`; these in any case where `with_sinks`.
    """

    judge: Judge
    variables: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    stdout: bool = False
    names: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    with_sinks: bool = False

    @classmethod
    def of(
        cls, program: Program, limits: Limits, compare: tuple[str, ...], flow: Dependencies
    ) -> "Comparison":
        """What the user named, else what the program's products reach.

        compare: variables, files by their endings, `stdout` and `sinks`. Raises MixPertError for an
        unknown criterion.
        """
        files = tuple(name for name in compare if name.endswith(ENDINGS))
        no_variables = {*files, printed.NAME, SINKS}
        return cls(
            judge=Judge(limits, program.path),
            variables=tuple(name for name in compare if name not in no_variables),
            files=files,
            stdout=printed.NAME in compare,
            names=() if compare else flow.names,
            sinks=flow.sinks if SINKS in compare or not compare else (),
            with_sinks=SINKS in compare,
        )
