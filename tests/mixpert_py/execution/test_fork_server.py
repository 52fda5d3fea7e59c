"""A forked process's answers come from its server, each once."""

import io
import socket
import subprocess

import pytest

from mixpert_py.execution.fork_server import AVAILABLE, Forked

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="no forks are made here")


class Interrupted(socket.socket):
    """Ctrl-C comes when the next packet has."""

    comes = False

    def recv_into(self, *given: object) -> int:  # type: ignore[override]
        count = super().recv_into(*given)  # type: ignore[arg-type]
        if self.comes:
            self.comes = False
            raise KeyboardInterrupt
        return count


def pair() -> tuple[socket.socket, Interrupted]:
    """The server's end, and ours."""
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return theirs, Interrupted(fileno=ours.detach())


@pytest.mark.parametrize("code", [0, 3, -15])
def test_an_exit_code_that_comes_with_an_interrupt_is_kept(code: int) -> None:
    theirs, ours = pair()
    with theirs, ours:
        theirs.send(b"77")
        child = Forked(ours, io.BytesIO())
        assert child.pid == 77
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.01)
        theirs.send(str(code).encode())
        ours.comes = True
        with pytest.raises(KeyboardInterrupt):
            child.wait(60.0)
        theirs.send(b"of the next job")
        assert child.wait(60.0) == code
        assert child.wait() == code


def test_a_server_that_is_gone_is_an_end() -> None:
    theirs, ours = pair()
    with ours:
        theirs.send(b"77")
        child = Forked(ours, io.BytesIO())
        theirs.close()
        with pytest.raises(EOFError):
            child.wait(60.0)
