"""Rewrites functions: one under `@accelerate`, or temporarily all functions of some modules.

Both compile the rewritten file of a function, and take the function's code from it.
"""

import functools
import gc
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any, ParamSpec, TypeVar, overload

import mixpert_py
from mixpert_py import config, sources
from mixpert_py.errors import SourceError
from mixpert_py.plan import Plan
from mixpert_py.runtime.context import Context, Modules, SchemeUse, current, use
from mixpert_py.runtime.modules import modules_covered
from mixpert_py.runtime.program_frames import pass_over, trim, warn
from mixpert_py.sources import in_memory

METHODS = (staticmethod, classmethod, MethodType)
MISMATCH = "its source does not match the running code"
ASSERTIONS = "@pytest_ar"  # what pytest calls its own module in what it rewrites

P = ParamSpec("P")
R = TypeVar("R")


@overload
def accelerate(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def accelerate(name: str | Path | Plan, /) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
@overload
def accelerate(
    *, scheme: str | None = None, plan: str | Path | Plan | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def accelerate(
    function: Callable[..., Any] | str | Path | Plan | None = None,
    /,
    *,
    scheme: str | None = None,
    plan: str | Path | Plan | None = None,
) -> Any:
    """Rewrite a function's products as `mixpert rewrite` would, and return the function.

    scheme: for all of its products. plan: a Plan or a plan file, which comes before `scheme`; a
    product in neither runs under the context of its call. Either may also be given without its
    name: `@accelerate("float32")`, `@accelerate("net.mixpert.toml")`. Warns after the first call
    with products if none of them took the scheme. What the function calls is
    left alone: see `precision` for that. Where PyTorch is imported before, that holds for Python
    code; the products that PyTorch makes itself, as those of modules that the function calls, are
    covered until the function returns, backward passes included (not in generators and
    coroutines). The call-site ids are those of `mixpert rewrite`. Where the source cannot be had or
    rewritten, warns and gives the function back as it is.

    Raises PlanError for an unknown scheme or a malformed plan, when the decorator is applied.
    """
    if isinstance(function, (str, Path, Plan)):
        if scheme is not None or plan is not None:
            raise TypeError("accelerate takes a scheme or a plan by position, or both by name")
        if isinstance(function, str) and not function.endswith(".toml"):
            scheme = function
        else:
            plan = function
        function = None
    loaded = config.given_plan(plan, scheme)

    def decorate(method: Any) -> Any:
        inner = method.__func__ if isinstance(method, METHODS) else method
        if isinstance(inner, FunctionType) and inner.__globals__ is globals():
            inner = inner.__wrapped__  # type: ignore[attr-defined] # decorated twice
        try:
            rewritten: Callable[..., Any] = _rewritten(inner, loaded, scheme)
        except SourceError as error:
            # Not its repr: functools.partial shows every element of the arrays that it holds.
            name = getattr(inner, "__qualname__", f"a {type(inner).__qualname__} object")
            warn(f"accelerate: {name} is left as it is: {error}")
            return method
        if "torch" in sys.modules and not _is_suspended(inner):
            rewritten = _with_modules(rewritten, Modules(loaded, scheme))
        is_own = rewritten is not inner and not _is_suspended(inner)
        if scheme is not None and scheme != "native" and is_own:
            rewritten = _with_a_look(rewritten, scheme)
        if isinstance(method, MethodType):
            return MethodType(rewritten, method.__self__)
        is_plain = not isinstance(method, (staticmethod, classmethod))
        return rewritten if is_plain else type(method)(rewritten)

    return decorate if function is None else decorate(function)


def _is_suspended(function: object) -> bool:
    """Return whether a call ends before the function's body has run, as a generator's call does."""
    kinds = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    return any(is_kind(function) for is_kind in kinds)


def _with_modules(function: Callable[..., Any], modules: Modules) -> Callable[..., Any]:
    """Wrap a function so that its calls cover the products that PyTorch makes itself."""
    takes_small = modules.scheme is not None or modules.plan is not None
    # The context that was in force at the last call, and ours in it: what is known of products is
    # kept in a context.
    last: tuple[Context | None, Context | None] = (None, None)

    @functools.wraps(function)
    def covered(*arguments: Any, **named: Any) -> Any:
        nonlocal last
        outer = current()
        known, inner = last
        if inner is None or known is not outer:
            inner = replace(outer, modules=modules)
            last = outer, inner
        with modules_covered(takes_small=takes_small), use(inner):
            return function(*arguments, **named)

    return covered


def _with_a_look(function: Callable[..., Any], scheme: str) -> Callable[..., Any]:
    """Wrap a function to warn after its first call with products if none took the scheme."""
    is_known = False

    @functools.wraps(function)
    def looked_at(*arguments: Any, **named: Any) -> Any:
        nonlocal is_known
        try:
            if is_known:
                return function(*arguments, **named)
            outer = current()
            uses = SchemeUse(scheme, outer.uses)
            with use(replace(outer, uses=uses)):
                result = function(*arguments, **named)
        except BaseException as error:
            trim(error)
            raise
        if uses.has_products and not is_known:
            is_known = True
            if why_not := uses.why_not():
                warn(f"accelerate({scheme!r}): {function.__qualname__}: {why_not}")
        return result

    pass_over(looked_at)
    return looked_at


def _rewritten(function: object, plan: Plan | None, scheme: str | None) -> FunctionType:
    """The function with rewritten code and the same globals, closure and defaults."""
    if not isinstance(function, FunctionType):
        raise SourceError("it is not a Python function")
    source, file = _source(function)
    is_typed = function.__module__ == "__main__" and not Path(file).is_file()
    module = "__main__" if is_typed else config.module_name(Path(file))
    made = in_memory.rewritten(source, module, file, plan, scheme)
    original = _compiled(source, file)
    code = _twin(function.__code__, made.code if made else original)
    if not _is_of(function, _twin(function.__code__, original)):
        raise SourceError(MISMATCH)
    called = _names(code)
    names = [name for name in (made.names if made else ()) if name in called]
    if not names:
        if hasattr(function, "__wrapped__"):
            raise SourceError("another decorator wraps it; accelerate belongs directly above `def`")
        return function
    for name in names:
        # The rewritten code names the package as the added import line would have named it.
        if function.__globals__.setdefault(name, mixpert_py) is not mixpert_py:
            raise SourceError(f"its module uses the name {name} for something else")
    # Its flags, too: types.coroutine, for one, sets some on a function that is there already.
    code = code.replace(co_flags=function.__code__.co_flags)
    copy = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(copy, function)
    return copy


@contextmanager
def rewritten_modules(modules: Collection[str]) -> Iterator[None]:
    """Rewrite, in place, every function that stands in a file of these imported modules.

    The functions stay the same objects, so that methods, closures and `from net import forward` run
    the rewritten products, too. Schemes that `accelerate` or `install` wrote into them do not count
    inside. Raises SourceError if a file cannot be rewritten.
    """
    before = rewrite_in_place(_rewritten_files(modules), lambda function: True)
    try:
        yield
    finally:
        for function, code in before:
            function.__code__ = code


def functions() -> list[FunctionType]:
    """All functions of this process. Only functions are asked for their class, because a dead proxy
    raises an error, and some objects of PyTorch give warnings.
    """
    return [function for function in gc.get_objects() if type(function) is FunctionType]


def rewrite_in_place(
    files: Mapping[str, CodeType], is_meant: Callable[[FunctionType], bool]
) -> list[tuple[FunctionType, CodeType]]:
    """Give every function that is meant its code from a rewritten file.

    files: maps a file, as code names it, to its rewritten code. Returns the functions with their
    earlier code. Functions that a decorator's `exec` made, or of an earlier source, keep theirs.
    """
    before = []
    for function in functions():
        code = function.__code__
        if code.co_filename in files and is_meant(function):
            with suppress(SourceError):
                made = _twin(code, files[code.co_filename])
                # Its flags, too: types.coroutine sets some on a function that is there already.
                function.__code__ = made.replace(co_flags=code.co_flags)
                before.append((function, code))
    return before


def is_rewritten(function: FunctionType) -> bool:
    """Whether a function's code refers to this package by the name of the added import."""
    names = _names(function.__code__)
    return any(function.__globals__.get(name) is mixpert_py for name in names)


def _rewritten_files(modules: Collection[str]) -> dict[str, CodeType]:
    """The rewritten files of imported modules, by the names that code has for them."""
    files = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py"):
            continue
        name = config.module_name(Path(file))
        if name not in modules:
            continue
        made = in_memory.rewritten(sources.read_whole(file), name, file)
        if made is not None:
            files[file] = made.code
            # The rewritten code names the package as the added import line would have named it.
            vars(module).update(dict.fromkeys(made.names, mixpert_py))
    return files


def _source(function: FunctionType) -> tuple[bytes, str]:
    """The whole file that contains a function, and the file's name."""
    try:
        file = inspect.getsourcefile(function)
        if file is None:
            raise OSError
        if Path(file).is_file():
            return Path(file).read_bytes(), file
        lines, _ = inspect.findsource(function)  # notebooks, doctests and archives
    except (OSError, TypeError):
        raise SourceError(
            "its source is not available (typed at a prompt, or run by exec?); put it into a file"
        ) from None
    # Decoded already: the mark says so, whatever encoding the first lines name.
    return "".join(lines).encode("utf-8-sig"), file


@functools.lru_cache(4)
def _compiled(source: bytes, file: str) -> CodeType:
    return compile(source, file, "exec", dont_inherit=True)


def _is_of(function: FunctionType, code: CodeType) -> bool:
    """Whether a function runs this code of its source, which may have been edited since.

    The code of an already rewritten function cannot be compared, and is accepted.
    """
    known = is_rewritten(function) or ASSERTIONS in _names(function.__code__)
    return known or _alike(function.__code__, code)


def _alike(one: object, other: object) -> bool:
    if not (isinstance(one, CodeType) and isinstance(other, CodeType)):
        return type(one) is type(other) and (one == other or repr(one) == repr(other))  # NaN, say
    return (
        one.co_code == other.co_code
        and one.co_names == other.co_names
        and len(one.co_consts) == len(other.co_consts)
        and all(map(_alike, one.co_consts, other.co_consts))
    )


def _names(code: CodeType) -> set[str]:
    return {name for part in _codes(code) for name in part.co_names}


def _twin(wanted: CodeType, rewritten: CodeType) -> CodeType:
    """The code in a rewritten file that stands where `wanted` stands in the original."""
    place = _place(wanted)
    for code in _codes(rewritten):
        if code.co_firstlineno == wanted.co_firstlineno and _place(code) == place:
            return code
    raise SourceError(MISMATCH)


def _place(code: CodeType) -> tuple[object, ...]:
    """Properties of a function's code that rewriting keeps, and that tell it from all others of
    its file: two lambdas may share a line, and one may end where the other does."""
    arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    spans = [
        ((line, column), (last_line, last_column))
        for line, last_line, column, last_column in code.co_positions()
        if line is not None and last_line is not None
        if column is not None and last_column  # those of width zero belong to no text
    ]
    start = min((start for start, _ in spans), default=None)
    end = max((end for _, end in spans), default=None)
    return code.co_name, arguments, code.co_freevars, start, end


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
