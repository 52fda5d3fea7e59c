"""Signals are held back, let through, and given back as they were."""

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from mixpert_py import __main__, config, execution
from mixpert_py.execution import SIGNALS, Interrupt, deferred_signals

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends signals")


def interrupt_me(number: int = signal.SIGINT) -> None:
    signal.raise_signal(signal.Signals(number))


def test_one_that_comes_while_the_command_line_is_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Importing:
        def find_spec(self, name: str, path: object, target: object = None) -> None:
            if name == "mixpert_py.cli":
                interrupt_me()

    monkeypatch.delitem(sys.modules, "mixpert_py.cli", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Importing(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", "mixpert: interrupted\n")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_waits_until_somebody_checks(number: int) -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    with deferred_signals() as interrupt:
        interrupt.check()
        interrupt_me(number)
        with pytest.raises(KeyboardInterrupt):
            interrupt.check()
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_it_is_let_through_once() -> None:
    steps = []

    def work(interrupt: Interrupt) -> None:
        with interrupt.let_through():
            try:
                interrupt_me()
                steps.append("not reached")
            finally:
                interrupt_me()
                steps.append("cleared up")

    with deferred_signals() as interrupt:
        with pytest.raises(KeyboardInterrupt):
            work(interrupt)
        # What came while it was cleared up is still to be heard.
        with pytest.raises(KeyboardInterrupt), interrupt.let_through():
            steps.append("not reached")
    assert steps == ["cleared up"]


def test_an_inner_hold_hears_it_first() -> None:
    with deferred_signals() as outer:
        with deferred_signals() as inner:
            interrupt_me()
        with pytest.raises(KeyboardInterrupt):
            inner.check()
        outer.check()
        interrupt_me()
        with pytest.raises(KeyboardInterrupt):
            outer.check()


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with deferred_signals() as interrupt, interrupt.let_through():
            interrupt_me(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("when", ["while it starts", "while it is ended"])
def test_no_process_is_left_by_an_interrupt(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)
            if when == "while it starts":
                interrupt_me()

    def kill(group: int, number: int) -> None:
        interrupt_me()
        os.kill(group, number)

    monkeypatch.setattr(execution.subprocess, "Popen", Interrupted)
    if when == "while it is ended":
        monkeypatch.setattr(execution.os, "killpg", kill)
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with pytest.raises(KeyboardInterrupt):
        execution.run(command, config.child_environment(), 0.3)
    (child,) = started
    assert child.returncode == -signal.SIGKILL
