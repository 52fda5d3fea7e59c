"""The differences between two plans, site by site."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from mixpert_py.graph.graph import printable
from mixpert_py.plan import Plan, PlanTable, Site
from mixpert_py.tuner.report.unit import error_text

# Errors that a plan reached, and its date: they differ between tunings, and decide nothing.
MEASURED = {"achieved", "holdout", "date", "gain"}


@dataclass(frozen=True, slots=True)
class Change:
    """A key of the provenance or of a criterion; None where one plan has no such key."""

    key: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class Difference:
    """Sites that only the new plan has, those that only the old one has, and those that run
    otherwise: another scheme, block or lock. Falsy if the plans are the same.
    """

    added: tuple[Site, ...]
    gone: tuple[Site, ...]
    changed: tuple[tuple[Site, Site], ...]
    criterion: tuple[Change, ...]
    provenance: tuple[Change, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.gone or self.changed or self.criterion or self.provenance)

    def record(self) -> dict[str, Any]:
        """The differences as plain data for JSON."""
        entry: dict[str, Any] = msgspec.to_builtins(self)
        entry["changed"] = [{"old": old, "new": new} for old, new in entry["changed"]]
        return entry

    def lines(self) -> Iterator[str]:
        """The differences as text: two lines for a site, one for everything else."""
        for old, new in self.changed:
            yield f"~ {_site(new)}"
            yield f"    {_run(old)} → {_run(new)}"
        for mark, sites in (("+", self.added), ("-", self.gone)):
            for site in sites:
                yield f"{mark} {_site(site)}"
                yield f"    {_run(site)}"
        for change in (*self.criterion, *self.provenance):
            old_value, new_value = (value or "none" for value in (change.old, change.new))
            yield printable(f"{change.key}: {old_value} → {new_value}")


def difference(old: Plan, new: Plan) -> Difference:
    """Old against new; sites are the same if their ids are. Measured errors, times and the date
    make no difference.
    """
    before, after = ({site.id: site for site in plan.site} for plan in (old, new))
    return Difference(
        added=tuple(site for site in new.site if site.id not in before),
        gone=tuple(site for site in old.site if site.id not in after),
        changed=tuple(
            (site, after[site.id])
            for site in old.site
            if site.id in after and _decided(site) != _decided(after[site.id])
        ),
        criterion=_changes(
            {key: value for entry in old.criterion for key, value in _flat(entry, entry.name)},
            {key: value for entry in new.criterion for key, value in _flat(entry, entry.name)},
        ),
        provenance=_changes(dict(_flat(old.provenance)), dict(_flat(new.provenance))),
    )


def _site(site: Site) -> str:
    return printable(f"{site.id}  {site.expression}".rstrip())


def _run(site: Site) -> str:
    """The scheme of a site, and the error and time that were measured."""
    parts = [site.scheme]
    if site.block is not None:
        parts.append(f"block {site.block}")
    if site.locked:
        parts.append("locked")
    if site.error:
        parts.append(f"error {error_text(site.error)}")
    if site.ms:
        parts.append(f"{site.ms:g} ms")
    return ", ".join(parts)


def _decided(site: Site) -> tuple[str, int | None, bool]:
    return site.scheme, site.block, site.locked


def _flat(entry: PlanTable, prefix: str = "") -> list[tuple[str, str]]:
    """Keys and values of a table, and of the tables in it, without what was measured."""
    found = []
    for key, value in msgspec.structs.asdict(entry).items():
        name = f"{prefix}.{key}".lstrip(".")
        if isinstance(value, dict):
            found += [(f"{name}.{inner}", str(text)) for inner, text in value.items()]
        elif key not in MEASURED and value is not None:
            found.append((name, str(value)))
    return found


def _changes(old: dict[str, str], new: dict[str, str]) -> tuple[Change, ...]:
    keys = dict.fromkeys((*old, *new))
    return tuple(
        Change(key, old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)
    )
