"""Functions of modules that are imported already, with rewritten products for a while."""

import gc
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FunctionType

import mixpert_py
from mixpert_py import config
from mixpert_py.decorator import twin
from mixpert_py.errors import SourceError
from mixpert_py.launch.launcher import read_source
from mixpert_py.sources import in_memory


@contextmanager
def rewritten(modules: Collection[str]) -> Iterator[None]:
    """Rewrite, in place, every function that stands in a file of these modules.

    modules: names as site ids begin with them; those that are not imported are passed over. The
    functions stay the same objects, so that methods, closures and `from net import forward` run
    the rewritten products, too. Schemes that `accelerate` or `install` wrote into them do not
    count inside. Raises SourceError if a file cannot be rewritten.
    """
    files = _rewritten_files(modules)
    before = [
        (function, function.__code__)
        for function in gc.get_objects()
        if isinstance(function, FunctionType) and function.__code__.co_filename in files
    ]
    try:
        for function, code in before:
            with suppress(SourceError):  # made by a decorator's `exec`, or of an earlier source
                made = twin(code, files[code.co_filename])
                # Its flags, too: types.coroutine sets some on a function that is there already.
                function.__code__ = made.replace(co_flags=code.co_flags)
        yield
    finally:
        for function, code in before:
            function.__code__ = code


def _rewritten_files(modules: Collection[str]) -> dict[str, CodeType]:
    """The files of the modules that are imported, named as their code names them, rewritten."""
    files = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py"):
            continue
        name = config.module_name(Path(file))
        if name not in modules:
            continue
        made = in_memory.rewritten(read_source(Path(file)), name, file)
        if made is not None:
            files[file] = made.code
            # The rewritten code names the package as the added import line would have named it.
            vars(module).update(dict.fromkeys(made.names, mixpert_py))
    return files
