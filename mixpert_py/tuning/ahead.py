"""Runs made before a search asks for them, while it waits for the one that it has asked for."""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType

from mixpert_py.execution import process
from mixpert_py.interrupts import held
from mixpert_py.tuner.records import Measure, Measurement

Plan = Mapping[str, str]


class Ahead:
    """Measures what is asked for in the thread that asks, and what is expected in others.

    measure: makes one run, in several threads at a time. runs: how many are made at a time, the
    one that is asked for among them. What a thread raises is raised where that plan is asked for.
    Used in a `with`, at whose end the threads are stopped in what they are at. interrupted: whether
    Ctrl-C came just then.
    """

    def __init__(self, measure: Measure, runs: int) -> None:
        self._measure = measure
        self._begun: dict[frozenset[tuple[str, str]], Future[Measurement]] = {}
        self._expected: list[Plan] = []
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self.interrupted = False
        self._may_begin = runs - 1  # of the threads; one run is left to whoever asks
        count = runs if runs > 1 else 0
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(count)]

    def __enter__(self) -> "Ahead":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with held() as interrupt:  # a second Ctrl-C is not to leave processes behind
            self._stop.set()
            with self._changed:
                self._changed.notify_all()
            for thread in self._threads:
                thread.join()
            try:
                interrupt.check()
            except KeyboardInterrupt:
                self.interrupted = True

    def __call__(self, plan: Plan) -> Measurement:
        """The run that was made ahead, or one made now. Ctrl-C raises KeyboardInterrupt."""
        with self._changed:
            found = self._begun.pop(_key(plan), None)
            self._expected = [other for other in self._expected if other != plan]
        if found is None:
            return self._measure(plan)
        self._let_begin(1)
        try:
            with held() as interrupt, interrupt.let_through():
                return found.result()
        finally:
            self._let_begin(-1)

    def expect(self, plans: Sequence[Plan]) -> None:
        """Make these next, if there is time, and no others that have not been begun."""
        with self._changed:
            # The first is asked for at once, and made there.
            self._expected = [plan for plan in plans[1:] if _key(plan) not in self._begun]
            self._changed.notify_all()

    def _work(self) -> None:
        process.stop.set(self._stop)
        while (begun := self._next()) is not None:
            plan, future = begun
            try:
                future.set_result(self._measure(plan))
            except BaseException as error:
                future.set_exception(error)
            self._let_begin(1)

    def _let_begin(self, more: int) -> None:
        with self._changed:
            self._may_begin += more
            self._changed.notify_all()

    def _is_due(self) -> bool:
        return self._stop.is_set() or (self._may_begin > 0 and bool(self._expected))

    def _next(self) -> tuple[Plan, Future[Measurement]] | None:
        """What is expected next, once something is; None at the end."""
        with self._changed:
            self._changed.wait_for(self._is_due)
            if self._stop.is_set():
                return None
            self._may_begin -= 1
            plan = self._expected.pop(0)
            future = self._begun[_key(plan)] = Future()
            return plan, future


def _key(plan: Plan) -> frozenset[tuple[str, str]]:
    return frozenset(plan.items())
