"""A worker process that takes jobs through a socket: how it is started, and handed one."""

import socket
import subprocess
from collections.abc import Mapping, Sequence
from os import close, fdopen, fsencode, pipe
from typing import IO

from mixpert_py.runs import process


def started(
    module: str, modules: Sequence[str], environment: Mapping[str, str]
) -> tuple[socket.socket, "subprocess.Popen[bytes]"]:
    """Our end of the socket, and a process that calls `main` of one of our modules with the other.

    modules: to be imported there, besides ours. It leads a process group.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        descriptor = theirs.fileno()
        worker = subprocess.Popen(
            process.python(module, str(descriptor), *modules),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            pass_fds=[descriptor],
            start_new_session=True,
        )
    return ours, worker


def hand_over(worker: socket.socket, job_file: str) -> IO[bytes]:
    """Send a job; returns what will be written by it. Raises OSError if the worker is gone."""
    read_end, write_end = pipe()
    stdout = fdopen(read_end, "rb")
    try:
        socket.send_fds(worker, [fsencode(job_file)], [write_end])
    except BaseException:
        stdout.close()
        raise
    finally:
        close(write_end)
    return stdout
