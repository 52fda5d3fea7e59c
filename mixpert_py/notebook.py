"""`%load_ext mixpert_py`: `%%mixpert` rewrites the products of a cell, `%mixpert on` of all cells.

A cell is rewritten as IPython would have compiled it: its own transformer has turned magics and
`!` lines into Python by then, and tracebacks show the lines of the cell.

Where the front end gives the notebook's file, a product has the site id that `mixpert rewrite`
gives it in that file, so that they share a plan. One thing differs, as a cell is seen without the
others: `#n` of the id counts equal products within the cell, not within the notebook. What a name
such as `np` of another cell means is seen when a product runs.
"""

import ast
import linecache
import os
import random
import re
import shlex
import sys
import warnings
from contextlib import nullcontext, suppress
from dataclasses import replace
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import click
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, output_can_be_silenced
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

import mixpert_py
from mixpert_py import config, errors, sources
from mixpert_py.decorator import functions, is_rewritten, rewrite_in_place
from mixpert_py.import_hook import ImportHook
from mixpert_py.launch import profile
from mixpert_py.launch.running import trim
from mixpert_py.passes.pipeline import analyze
from mixpert_py.plan import Plan
from mixpert_py.runtime import context as contexts
from mixpert_py.runtime.backends import HELP as BACKEND_HELP
from mixpert_py.runtime.backends import require_backend
from mixpert_py.runtime.context import SchemeUse
from mixpert_py.runtime.tracing.trace import Trace
from mixpert_py.sources import in_memory

if TYPE_CHECKING:
    from mixpert_py.tuning.options import TuningOptions
    from mixpert_py.tuning.search import TuningResult

MODULE = "__main__"  # the first part of the site ids where the notebook's file is not known
NAME = "mixpert"


class CellSyntaxError(Exception):
    """A syntax error in a cell, shown as IPython shows syntax errors."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("".join(lines[-1:]))
        self.lines = lines

    def _render_traceback_(self) -> list[str]:
        return self.lines


class CellRewriter(ast.NodeTransformer):
    """Rewrites every executed cell while it is installed in a shell.

    IPython gives `ast_transformers` a tree without its text, `input_transformers_post` the text.
    The last text is the tree's if it parses to it.
    """

    def __init__(self, magics: "MixPertMagics", plan: Plan | None, scheme: str | None) -> None:
        self.magics = magics
        self.plan = plan
        self.scheme = scheme
        self.text = ""

    def install(self) -> None:
        shell = self.magics.shell
        shell.input_transformers_post.append(self.remember)
        shell.ast_transformers.append(self)

    def uninstall(self) -> None:
        shell = self.magics.shell
        shell.input_transformers_post.remove(self.remember)
        shell.ast_transformers.remove(self)

    def remember(self, lines: list[str]) -> list[str]:
        """Keep a cell's text; this is the last of IPython's text transformers."""
        self.text = "".join(lines)
        return lines

    def visit(self, tree: Any) -> Any:
        """The rewritten tree of a cell, or the tree itself if the last text is not its text."""
        if self.text and _is_tree_of(tree, self.text):
            # IPython's name of the latest cell with this text, and its lines.
            lines, cached = self.text.splitlines(keepends=True), reversed(linecache.cache.items())
            name = next((name for name, it in cached if lines in it), "<cell>")
            return self.magics._rewritten(tree, self.text, name, self.plan, self.scheme)
        return tree


def _is_tree_of(tree: ast.AST, text: str) -> bool:
    """Return whether a text parses to a tree; a cell that `%%mixpert` has rewritten does not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # IPython has let Python warn of them
            parsed = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False  # such as one with `await`, or one that is too deep
    return ast.dump(parsed) == ast.dump(tree)


@magics_class
class MixPertMagics(Magics):
    """The magics.

    places: the call sites of all cells so far, which later cells may reach by calls. functions:
    functions that `%mixpert on` has rewritten in place, with their earlier code. plan: the result
    of `%%mixpert --tune`.
    """

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self.places: profile.Places = {}
        self.rewriter: CellRewriter | None = None
        self.functions: list[tuple[FunctionType, CodeType]] = []
        self.plan: Plan | None = None

    @magic_arguments()
    @argument(
        "switch",
        nargs="?",
        choices=("on", "off"),
        help="on: rewrite the cells that are run from now on, and functions that are defined "
        "already. Without a word: print what is in force.",
    )
    @argument("--plan", help="Run under this plan file.")
    @argument("--scheme", help="Run every product that the plan does not name under this scheme.")
    @line_magic("mixpert")  # type: ignore[arg-type]
    def switch(self, line: str) -> None:
        """Rewrite the products of all later cells and of functions of earlier cells, or stop doing
        so.
        """
        options = parse_argstring(self.switch, line)
        if options.switch is None and not line.strip():
            print(self._state())
            return
        if options.switch is None:
            raise UsageError("give `on` or `off` before the options")
        try:
            plan = config.given_plan(options.plan, options.scheme)
        except errors.PlanError as error:
            raise UsageError(str(error)) from None
        self.stop()
        if options.switch == "on":
            self._start(plan, options.scheme)

    def _state(self) -> str:
        """A line that says which cells are rewritten, and under what."""
        if self.rewriter is None:
            return "off: only cells under %%mixpert are rewritten; `%mixpert on` rewrites all"
        scheme, plan = self.rewriter.scheme, self.rewriter.plan or self.plan
        words = [f"scheme {scheme}"] if scheme else []
        words += [f"a plan with {len(plan.site)} call sites"] if plan else []
        return f"on: all cells are rewritten, under {' and '.join(words) or 'no plan or scheme'}"

    def _start(self, plan: Plan | None, scheme: str | None) -> None:
        config.look_up_plans()
        self.rewriter = CellRewriter(self, plan, scheme)
        self.rewriter.install()
        self._rewrite_functions(plan, scheme)

    def stop(self) -> None:
        """Rewrite only cells under `%%mixpert`; restore functions, and end `--tune`'s plan."""
        if self.plan is not None:
            self._put_in_force(None)
        if self.rewriter is not None:
            self.rewriter.uninstall()
            self.rewriter = None
        for function, code in self.functions:
            function.__code__ = code
        self.functions = []

    def _rewrite_functions(self, plan: Plan | None, scheme: str | None) -> None:
        """Rewrite the functions that earlier cells have defined, in place."""
        namespace = self.shell.user_ns
        module = config.notebook_module(namespace) or MODULE
        files = {}
        for name, text in self._cells_of_functions().items():
            source = text.encode("utf-8-sig")
            with suppress(errors.SourceError):  # it has run, and runs as it is
                if made := in_memory.rewritten(source, module, name, plan, scheme):
                    files[name] = made.code
                    namespace.update(dict.fromkeys(made.names, mixpert_py))
                    self.places |= {site.id: (name, site) for site in analyze(source, module)}
        self.functions = rewrite_in_place(
            files, lambda it: it.__globals__ is namespace and not is_rewritten(it)
        )

    def _cells_of_functions(self) -> dict[str, str]:
        """The texts of cells that define functions, by the file names in their code."""
        names = {
            function.__code__.co_filename
            for function in functions()
            if function.__globals__ is self.shell.user_ns
        }
        # The text of a cell is there, and in no file.
        names = {name for name in names if name in linecache.cache and not os.path.isfile(name)}
        return {name: "".join(linecache.getlines(name)) for name in names}

    @magic_arguments()
    @argument("--plan", help="Run under this plan file.")
    @argument("--scheme", help="Run every product that the plan does not name under this scheme.")
    @argument("--backend", help=f"{BACKEND_HELP}.")
    @argument("--profile", action="store_true", help="Print what ran at each product, and why.")
    @argument(
        "--tune",
        action="store_true",
        help="Find the fastest plan within a budget, by running the cell several times on copies "
        "of the variables. Then run it, and all cells from now on, under that plan.",
    )
    @argument("--error", action="append", default=[], help="With --tune: [VALUE=]BUDGET.")
    @argument("--criterion", action="append", default=[], help="With --tune: [VALUE=]NAME.")
    @argument("--compare", action="append", default=[], help="With --tune: a variable.")
    @argument("--device", help="With --tune: a GPU for which times are predicted.")
    @argument("-o", "--output", help="With --tune: the file that the plan is written to.")
    @output_can_be_silenced
    @cell_magic
    def mixpert(self, line: str, cell: str) -> Any:
        """Run a cell with its products rewritten. Functions defined in it stay rewritten."""
        __tracebackhide__ = True
        options = parse_argstring(self.mixpert, line)
        try:
            plan = config.given_plan(options.plan, options.scheme)
            require_backend(options.backend)
        except (errors.DeviceError, errors.PlanError) as error:
            raise UsageError(str(error)) from None
        if options.tune:
            state = random.getstate()
            try:
                self._tune(options, line, cell)
            finally:
                random.setstate(state)  # what a tuning imports may draw numbers, as rich does
        elif any(
            (options.error, options.criterion, options.compare, options.device, options.output)
        ):
            raise UsageError("--error, --criterion, --compare, --device and -o are for --tune")
        code, last = self._compiled(cell, plan, options.scheme)
        trace = Trace(()) if options.profile else None
        uses = SchemeUse(options.scheme) if options.scheme else None
        config.look_up_plans()
        outer, backend = contexts.current(), options.backend
        inner = replace(outer, backend=backend or outer.backend, trace=trace or outer.trace)
        namespaces = self.shell.user_global_ns, self.shell.user_ns
        try:
            changed = contexts.use(replace(inner, uses=uses))
            with changed if backend or trace or uses else nullcontext():
                exec(code, *namespaces)
                value = last and eval(last, *namespaces)
        except BaseException as error:
            trim(error)
            raise
        finally:
            if trace is not None:
                self._print_profile(trace)
        if uses is not None:
            _say_where_unused(uses, code)
        return value

    def _compiled(
        self, cell: str, plan: Plan | None, scheme: str | None
    ) -> tuple[CodeType, CodeType | None]:
        """The cell's rewritten code, and the code of the expression at its end."""
        shell = self.shell
        try:
            # The line of the magic itself stays one, so that lines count from the cell's top.
            text = "\n" + shell.transform_cell(cell)
            name = shell.compile.cache(text, self._number(), raw_code=cell)
            tree: Any = shell.compile.ast_parse(text, name)
            tree = shell.transform_ast(self._rewritten(tree, text, name, plan, scheme))
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            code = shell.compile(tree, name, "exec")
            value: Any = ast.Expression(last.value) if last else None
            return code, shell.compile(value, name, "eval") if value else None
        except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError) as error:
            lines = shell.SyntaxTB.structured_traceback(type(error), error, None)
            raise CellSyntaxError(lines) from None

    def _rewritten(
        self, tree: ast.Module, text: str, name: str, plan: Plan | None, scheme: str | None
    ) -> ast.Module:
        """A cell's tree with its products rewritten, or the tree itself if that is not possible."""
        source = text.encode("utf-8-sig")  # decoded already, whatever encoding it names
        module = config.notebook_module(self.shell.user_ns) or MODULE
        try:
            tree = in_memory.rewritten_tree(source, module, name, plan, scheme)
            self.places |= {site.id: (name, site) for site in analyze(source, module)}
        except errors.SourceError as error:
            message = str(error).removeprefix(f"{module}: ")
            warnings.warn(f"mixpert: {message}: the cell runs as it is", stacklevel=5)
        return tree

    def _tune(self, options: Any, line: str, cell: str) -> None:
        """Find the fastest plan under which a cell is within a budget, put it in force, and show
        it.

        Raises UsageError if there is none or the cell raises; all variables are then as before.
        """
        from mixpert_py.commands import tables
        from mixpert_py.plan import save
        from mixpert_py.tuning.search import record

        was_on = self.rewriter is not None
        try:
            if options.plan or options.scheme:
                raise errors.PlanError(
                    "--tune finds the plan: it goes with neither --plan nor --scheme"
                )
            if not was_on:
                self._start(None, None)
            result = self._tuned(options, line, cell)
        except BaseException as error:
            if not was_on:
                self.stop()
            if isinstance(error, (errors.BudgetError, errors.ProgramError, errors.ShapeError)):
                raise UsageError(f"{error}; all variables are as they were") from None
            if isinstance(error, errors.MixPertError):
                raise UsageError(str(error)) from None
            raise
        self._put_in_force(result.plan)
        tables.print_tuned(record(result), "more runs of the cell")
        if options.output:
            try:
                save(result.plan, options.output)
                print(f"plan written to {options.output}")
            except errors.PlanError as error:
                _say(f"{error}; it is in force")

    def _tuned(self, options: Any, line: str, cell: str) -> "TuningResult":
        """The result of tuning a cell. Raises MixPertError if there is none."""
        from mixpert_py.tuning.cell import Cell, as_program, tune_cell

        code, last = self._compiled(cell, None, None)
        texts = [as_program(self.shell.transform_cell(cell)), *self._cells_of_functions().values()]
        words = {word for text in texts for word in re.findall(r"\w+", text)}
        module = config.notebook_module(self.shell.user_ns) or MODULE
        program = Cell(
            f"In[{self._number()}]",
            module,
            texts[0],
            code,
            last,
            self.shell.user_ns,
            words - set(self.shell.user_ns_hidden),
            tuple(it for hook in _hooks() for it in hook.rewritten.values()),
        )
        packages = tuple(name for hook in _hooks() for name in hook.packages)
        settings = replace(_settings(line), packages=packages)
        return tune_cell(program, self._places_shown(), settings, self.plan, options.output, _say)

    def _put_in_force(self, plan: Plan | None) -> None:
        """Put the plan in force for all products that it names, in any cell."""
        self.plan = plan
        contexts.set_default(replace(contexts.default(), plan=plan, by_id=plan is not None))

    def _number(self) -> int:
        running_cell = self.shell.displayhook.exec_result
        return running_cell.execution_count if running_cell else self.shell.execution_count

    def _print_profile(self, trace: Trace) -> None:
        from mixpert_py.commands import tables

        imported = [module for hook in _hooks() for module in hook.rewritten.values()]
        theirs = profile.imported_places(imported, profile.modules_of(trace), None)
        records = profile.records(trace, {**theirs, **self._places_shown()}, MODULE)
        # Lines of libraries come with their files, and then those of cells with their numbers.
        script = "" if any(record["id"] in theirs for record in records) else None
        tables.print_profile(records, sys.stderr, script=script)

    def _places_shown(self) -> profile.Places:
        """The call sites of all cells so far, with cells as prompts show them."""
        prompt = self.shell.compile.format_code_name  # ("Cell", "In[3]"); None for other code
        return {
            site: (str((prompt(name) or ("", name))[1]), place)
            for site, (name, place) in self.places.items()
        }


def _settings(line: str) -> "TuningOptions":
    """The tuning options in a magic's line; raises MixPertError, or SourceError of a project."""
    from mixpert_py.commands import tune

    words = [word for word in shlex.split(line) if word not in ("--tune", "--profile")]
    defaults = sources.tuning_defaults(os.path.abspath(MODULE))
    try:
        with tune.tune.make_context("tune", words) as context:
            options, _ = tune.TuneOptions(**context.params).with_defaults(defaults)
            settings = tune.settings_of(options, [])
        if settings.stricter:
            raise errors.MixPertError(
                "a cell is tuned for one budget: give one bare --error BUDGET"
            )
        return replace(settings, command=f"%%mixpert {line}")
    except click.UsageError as error:
        raise errors.MixPertError(error.format_message()) from None


def _say_where_unused(uses: SchemeUse, code: CodeType) -> None:
    """Say on stderr that no product of a cell took the scheme that its magic names."""
    why_not = uses.why_not()
    is_rewritten = any(name.startswith(in_memory.ALIAS) for name in code.co_names)
    if why_not is None and not uses.has_products and not is_rewritten and uses.scheme != "native":
        why_not = (
            "the cell has no product of its own; `%mixpert on` rewrites functions of earlier cells"
        )
    if why_not is not None:
        _say(f"--scheme {uses.scheme}: {why_not}")


def _say(line: str) -> None:
    print(f"mixpert: {line}", file=sys.stderr)


def _hooks() -> list[ImportHook]:
    return [finder for finder in sys.meta_path if isinstance(finder, ImportHook)]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics: `%load_ext mixpert_py` calls this."""
    shell.register_magics(MixPertMagics)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Remove the magics: `%unload_ext mixpert_py` calls this."""
    magic = shell.magics_manager.magics["line"].pop(NAME, None)
    if magic is not None:
        magic.__self__.stop()
    shell.magics_manager.magics["cell"].pop(NAME, None)
