"""The settings of a process, and the plan that it runs under.

Only this file and the command line read the environment. A plan comes from an argument, else from
MIXPERT_PLAN, else from `<module>.mixpert.toml` beside the running file.
"""

import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from mixpert_py import files, sources
from mixpert_py import plan as plan_file
from mixpert_py.errors import PlanError, SourceError
from mixpert_py.plan import Plan
from mixpert_py.plan import module_name as module_name
from mixpert_py.runtime import own_files, processor

SUFFIX = ".mixpert.toml"
_FROM_PARENT = "MIXPERT_SPAWNED"
# The variables of BLAS libraries, and the one that most of them read where their own is not set.
_THREAD_VARIABLES = (
    *("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"),
    *("VECLIB_MAXIMUM_THREADS", "OMP_NUM_THREADS"),
)
# OpenBLAS's threads, once idle, spin on the cores that transfers need, for 2**28 cycles after each
# call of NumPy's. 2**20 of them outlast the gaps between the calls of one LAPACK routine.
_IDLE_CYCLES = {"OPENBLAS_THREAD_TIMEOUT": "20"}


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read and check a plan file, scheme names included.

    Raises PlanError, in one line with the key and its line, on anything malformed.
    """
    from mixpert_py.runtime.schemes import schemes

    return plan_file.load(path, known=schemes())


def check_scheme(name: str | None) -> None:
    """Raise PlanError if a scheme name is unknown."""
    if name is not None:
        from mixpert_py.runtime.schemes import get

        get(name)


def given_plan(plan: str | os.PathLike[str] | Plan | None, scheme: str | None) -> Plan | None:
    """The plan given as an object or a file. Raises PlanError, for an unknown scheme as well."""
    check_scheme(scheme)
    loaded = plan if isinstance(plan, Plan) or plan is None else load_plan(plan)
    for site in loaded.site if loaded else ():
        check_scheme(site.scheme)
    return loaded


def plan_beside(script: str | os.PathLike[str]) -> Path:
    """A script's plan file: `mlp.mixpert.toml` beside `mlp.py`, by the module in site ids."""
    return Path(script).with_name(f"{module_name(Path(script))}{SUFFIX}")


def require_plan_place(path: Path) -> None:
    """Raise PlanError if a plan could not be written here, before any work is done for it."""
    try:
        files.require_place(path)
    except OSError as error:
        raise PlanError(f"{path}: cannot write a plan there: {error.strerror}") from None


def plan_for(script: str, argument: str | None) -> Plan | None:
    """The plan that a program runs under, in the order above."""
    return _found(plan_beside(script)) if argument is None else load_plan(argument)


def _found(beside: Path) -> Plan | None:
    """The plan that the environment names, else the file at `beside` if it exists."""
    if named := os.environ.get("MIXPERT_PLAN"):
        return load_plan(named)
    return load_plan(beside) if beside.is_file() else None


def notebook_module(names: Mapping[str, object]) -> str | None:
    """The module of a running notebook's site ids: that of its file. None where it is not known.

    names: the notebook's variables. VS Code sets one to the file; Jupyter's server sets the
    kernel's environment, where a renamed notebook has its old name until the kernel restarts.
    """
    name = names.get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME", "")
    if not isinstance(name, str) or not name.endswith(".ipynb"):  # a console has a name as well
        return None
    return module_name(Path(name))


def blas_threads() -> int:
    """The number of BLAS threads in runs that are compared: as set, else that of the cores."""
    for name in _THREAD_VARIABLES:
        number = os.environ.get(name, "").partition(",")[0]  # OpenMP: one number for each level
        if number.isdecimal() and int(number):
            return int(number)
    return processor.cores()


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base, "mixpert") if os.path.isabs(base) else own_files.folder()


def child_environment() -> dict[str, str]:
    """The environment for a run of a user's program: ours, with a number of BLAS threads."""
    is_set = any(os.environ.get(name) for name in _THREAD_VARIABLES)
    chosen = {} if is_set else dict.fromkeys(_THREAD_VARIABLES, str(blas_threads()))
    return {**_IDLE_CYCLES, **os.environ, **chosen, "PYTHONUNBUFFERED": "1"}


def let_idle_threads_sleep() -> None:
    """Let idle BLAS threads sleep soon, unless the user set it; call it before NumPy loads."""
    for name, cycles in _IDLE_CYCLES.items():
        os.environ.setdefault(name, cycles)


def pass_to_children(file: str) -> None:
    """Tell child processes where a file for them is."""
    os.environ[_FROM_PARENT] = file


def file_from_parent() -> str:
    return os.environ[_FROM_PARENT]


def project_packages() -> tuple[str, ...]:
    """`[tool.mixpert] packages` of the running program's project."""
    return sources.packages(str(_running_folder()))


def look_up_plans() -> None:
    """Make the runtime find plans, and whether the project is reproducible, by itself, as rewritten
    programs need.

    Has no effect if the default context of the process has been set.
    """
    from mixpert_py.runtime import context as contexts
    from mixpert_py.runtime.gpu.start import start

    if contexts.current() is contexts.INITIAL:
        contexts.set_default(contexts.Context(find_plan=find_plan, finds_plans=has_plans))
        start.asks = _is_reproducible


def _is_reproducible() -> bool:
    """`[tool.mixpert] reproducible` of the running program's project; False if that is wrong."""
    try:
        return sources.is_reproducible(str(_running_folder()))
    except SourceError:
        return False


@cache
def has_plans() -> bool:
    """Return whether MIXPERT_PLAN is set or a plan file lies beside the running program."""
    return bool(os.environ.get("MIXPERT_PLAN")) or any(_running_folder().glob(f"*{SUFFIX}"))


@cache
def find_plan(module: str) -> Plan | None:
    return _found(_running_folder() / f"{module}{SUFFIX}")


def _running_folder() -> Path:
    """The folder of the program's file, else the current one, which may have been removed."""
    program: str | None = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(program).parent if program else Path()
