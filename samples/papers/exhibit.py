"""Exhibits of the papers: a table or figure, its published numbers, and how ours are measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from samples.papers.place import Place

Row = dict[str, Any]  # one line of a table: text, numbers, or None for what is not known

QUOTED = "quoted in the project's own notes, not checked against the paper"
NOT_TRANSCRIBED = "published figure; values not transcribed"


@dataclass(frozen=True, slots=True)
class Published:
    """A number as published. source: where it was read; confirmed: it was read in the paper."""

    what: str
    value: str
    source: str
    confirmed: bool = True


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table. spec: as `format` takes it; factor: what values are multiplied by."""

    key: str
    heading: str
    spec: str = ""
    factor: float = 1.0

    def text(self, row: Row) -> str:
        """The cell; a dash where nothing is known."""
        value = row.get(self.key)
        if value is None:
            return "–"
        if isinstance(value, str):  # "inf" too, which JSON has no number for
            return value
        return format(value * self.factor, self.spec) if self.spec else str(value)


@dataclass(frozen=True, slots=True)
class Lines:
    """Series over logarithmic axes. by: the keys that name a series; joined: by lines.

    marks: published values, as dashed lines across, by name.
    """

    x: Column
    y: Column
    by: tuple[str, ...] = ("name",)
    joined: bool = True
    marks: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Bars:
    """A bar a row, cut into its parts, each a share of their sum. by: the keys that name a row."""

    parts: tuple[Column, ...]
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """The rows that were measured. where: the machine, if it is not the one that measures now."""

    rows: list[Row]
    where: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Missing:
    """The reason why something is not measured here."""

    why: str


@dataclass(frozen=True, slots=True)
class Exhibit:
    """One thing that a paper shows. id: as `--only` takes it; of: table and figures of the paper.

    lead: what is compared here, and what the measure is. gpu: whether it is a matter of speed, or
    of the chip, which only a GPU can answer. headline: the rows in a few words.
    """

    id: str
    of: str
    title: str
    lead: str
    columns: tuple[Column, ...]
    measure: Callable[[Place], Found | Missing]
    picture: Lines | Bars | None = None
    published: tuple[Published, ...] = ()
    gpu: bool = True
    headline: Callable[[Sequence[Row]], str] | None = None


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper and its exhibits. name: as `--only` takes it; chips: what it measured on."""

    name: str
    title: str
    cited: str
    chips: str
    exhibits: tuple[Exhibit, ...]
