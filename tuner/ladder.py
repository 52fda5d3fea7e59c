"""The ladder: rungs of schemes from most to least accurate."""

from dataclasses import dataclass

from mixpert_py.errors import PlanError

Rung = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ladder:
    """Rungs, best first; the schemes of one rung are incomparable in accuracy."""

    rungs: tuple[Rung, ...]

    @property
    def top(self) -> str:
        return self.rungs[0][0]

    def level(self, site: str, scheme: str) -> int:
        """The number of the rung that holds a scheme. Raises PlanError if none does."""
        for number, rung in enumerate(self.rungs):
            if scheme in rung:
                return number
        names = ", ".join(name for rung in self.rungs for name in rung)
        raise PlanError(
            f"{site}: scheme {scheme!r} is not on the ladder {names}; "
            f"lock the site or choose another ladder"
        )

    def below(self, site: str, scheme: str) -> tuple[Rung, ...]:
        """The rungs under a scheme, nearest first."""
        return self.rungs[self.level(site, scheme) + 1 :]

    def above(self, site: str, scheme: str) -> Rung:
        """The rung over a scheme; empty at the top."""
        level = self.level(site, scheme)
        return self.rungs[level - 1] if level else ()
