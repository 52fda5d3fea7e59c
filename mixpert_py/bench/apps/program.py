"""A sample, rewritten by the tool from the file as it is, sums with their products, in the parts
that are measured.
"""

import contextlib
import io
import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from mixpert_py.errors import MixPertError
from mixpert_py.passes.call_site import CallSite
from mixpert_py.passes.pipeline import analyze, dependencies
from mixpert_py.sources import in_memory, source_files

# A sample's own functions, of which `work` alone is timed.
PARTS = ("parsed", "problem", "work", "report")
WIDE = {"float32": "float64", "complex64": "complex128"}


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """A sample's functions, rewritten in memory, and its call sites with the edges between them.

    parsed(arguments) → options; problem(xp, options) → inputs, a tuple; work(xp, options, *inputs)
    → values, a tuple; report(xp, options, *values, *inputs) prints figures.
    """

    name: str
    functions: Mapping[str, Any]
    sites: Mapping[str, CallSite]
    edges: frozenset[tuple[str, str]]

    @classmethod
    def load(cls, path: Path) -> "Sample":
        """Rewrite a sample. Raises SourceError if unreadable, MixPertError without a part."""
        source, module = source_files.read_whole(path), path.stem
        made = in_memory.rewritten(source, module, str(path), fuse=True)
        if made is None:
            raise MixPertError(f"{path}: has no product")
        functions: dict[str, Any] = {"__name__": module, "__file__": str(path)}
        exec(made.code, functions)
        missing = [name for name in PARTS if name not in functions]
        if missing:
            raise MixPertError(f"{path}: has no function {missing[0]}()")
        sites = {site.id: site for site in analyze(source, module, fuse=True) if not site.reason}
        return cls(module, functions, sites, dependencies(source, module).edges)

    def problem(self, xp: ModuleType, arguments: Sequence[str]) -> "Problem":
        """The sample with inputs drawn anew for these arguments."""
        options = self.functions["parsed"](list(arguments))
        return Problem(self, xp, options, self.functions["problem"](xp, options))


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A sample with its inputs."""

    sample: Sample
    xp: ModuleType
    options: Namespace
    inputs: tuple[Any, ...]

    def work(self) -> tuple[Any, ...]:
        """Run the part that is timed; returns its values."""
        found: tuple[Any, ...] = self.sample.functions["work"](self.xp, self.options, *self.inputs)
        return found

    def wide(self) -> "Problem":
        """Return the same problem in float64 or complex128, with the very same inputs."""
        options = Namespace(**vars(self.options))
        if "dtype" in options:
            options.dtype = "float64"
        return Problem(self.sample, self.xp, options, _wide(self.inputs))

    def figure(self, label: str, values: tuple[Any, ...]) -> float:
        """The number at the end of the line that the sample's report begins with a label.

        Raises MixPertError where there is no such line.
        """
        with contextlib.redirect_stdout(io.StringIO()) as output:
            self.sample.functions["report"](self.xp, self.options, *values, *self.inputs)
        found = re.search(rf"^{re.escape(label)}.*\s(\S+)$", output.getvalue(), re.MULTILINE)
        if found is None:
            raise MixPertError(f"{self.sample.name}: prints no {label!r}")
        return float(found[1])


def _wide(value: Any) -> Any:
    """Every float32 array among inputs in float64, every complex64 one in complex128."""
    if isinstance(value, (tuple, list)):
        return type(value)(map(_wide, value))
    if isinstance(value, dict):
        return {key: _wide(one) for key, one in value.items()}
    dtype = WIDE.get(str(getattr(value, "dtype", None)))
    return value if dtype is None else value.astype(dtype)
