"""Plans that are not run because a program hung under plans like them.

A run that hangs takes the whole time limit, which may be minutes. Iterations that wait for a small
residual do so at each level that is not accurate enough, and a search would try them all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mixpert_py.execution.executor import is_timeout
from mixpert_py.tuner.records import Measure, Measurement

Lowering = tuple[str, str]
"""Site, scheme."""


@dataclass(slots=True)
class HangGuard:
    """A `Measure` that makes runs by another one, and refuses those that are likely to hang.

    start: the plan that a search begins with; only what differs from it can be the cause of a hang.

    A site that was the only suspect in a run that hung is not lowered again, at no level. Where
    several were suspects, no two of them are lowered together until runs that end in time have
    cleared them: a search then finds the cause by lowering them one by one. A run clears the
    schemes that it ended under.
    """

    measure: Measure
    start: Mapping[str, str]
    _cleared: set[Lowering] = field(default_factory=set)
    _guilty: dict[str, str] = field(default_factory=dict)  # site → scheme that it hung under
    _suspects: list[set[str]] = field(default_factory=list)  # sites, for each unexplained hang

    def __call__(self, plan: Mapping[str, str], /) -> Measurement:
        problem = self._refusal(plan)
        if problem:
            return Measurement(0.0, float("nan"), {}, problem)
        measured = self.measure(plan)
        lowered = self._uncleared(plan)
        if measured.problem is None:
            self._cleared |= lowered
        elif is_timeout(measured.problem):
            self._blame(lowered)
        return measured

    def allows(self, plan: Mapping[str, str]) -> bool:
        """Return whether this guard would run a plan."""
        return not self._refusal(plan)

    def _uncleared(self, plan: Mapping[str, str]) -> set[Lowering]:
        """Return the sites that a plan lowers, and to which schemes, that no run has cleared."""
        changed = {
            (site, scheme) for site, scheme in plan.items() if scheme != self.start.get(site)
        }
        return changed - self._cleared

    def _refusal(self, plan: Mapping[str, str]) -> str:
        """Why a plan is not run; empty if it is."""
        sites = {site for site, _ in self._uncleared(plan)}
        for site in sorted(sites & self._guilty.keys()):
            return f"not run: the program ran into its time limit under {self._guilty[site]} here"
        if any(len(sites & suspects) > 1 for suspects in self._suspects):
            return "not run: the program ran into its time limit with several of these lowered"
        return ""

    def _blame(self, lowered: set[Lowering]) -> None:
        """Learn from a hang under a plan that lowers these."""
        if len(lowered) == 1:
            ((site, scheme),) = lowered
            self._guilty[site] = scheme
            self._suspects = [suspects for suspects in self._suspects if site not in suspects]
        elif lowered:
            self._suspects.append({site for site, _ in lowered})
