"""Rewrites the main module in children that `multiprocessing` spawns, which import it anew."""

import atexit
import os
import tempfile
from functools import cache
from multiprocessing import spawn
from pathlib import Path
from typing import Any

import msgspec

from mixpert_py import config, files
from mixpert_py.plan import Plan
from mixpert_py.runtime.context import Context


class SpawnedJob(msgspec.Struct, frozen=True):
    """The script that a spawned child rewrites, and the context in which it runs it."""

    script: bytes  # file names need not be text
    project: bytes | None
    scheme: str | None
    backend: str | None
    plan: Plan | None
    children: str | None = None  # as in `Trace`
    packages: tuple[str, ...] = ()

    @classmethod
    def from_parent(cls) -> "SpawnedJob":
        """The job that the parent process has left for this child."""
        return msgspec.json.decode(Path(config.file_from_parent()).read_bytes(), type=cls)


def rewrite_in_spawned_children(
    script: str, context: Context, project: str | None, packages: tuple[str, ...] = ()
) -> None:
    """Make children started by `spawn` import the rewritten program instead of the original.

    Such a child imports the main module anew, from its file. It then imports `spawned_main`
    instead, which rewrites that file and runs it. project: the folder whose modules it rewrites on
    import; None for none. packages: rewritten on import, too.
    """
    original: Any = getattr(spawn.get_preparation_data, "__wrapped__", spawn.get_preparation_data)

    def get_preparation_data(name: str) -> dict[str, Any]:
        data: dict[str, Any] = original(name)
        if data.pop("init_main_from_path", None) is not None:
            data["init_main_from_name"] = "mixpert_py.launch.spawned_main"
            config.pass_to_children(job_file(os.getpid()))
        return data

    @cache
    def job_file(process: int) -> str:
        # A file, because a plan may be larger than an environment variable; made for the first
        # child, because most programs spawn none. A fork makes its own: either may end first.
        descriptor, path = tempfile.mkstemp(prefix=files.RUN_PREFIX, suffix=".json")
        atexit.register(_remove, path, process)
        folder = None if project is None else os.fsencode(project)
        children = None if context.trace is None else context.trace.children
        settings = context.scheme, context.backend, context.plan, children
        job = SpawnedJob(os.fsencode(script), folder, *settings, packages)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(job))
        return path

    get_preparation_data.__wrapped__ = original  # type: ignore[attr-defined]
    spawn.get_preparation_data = get_preparation_data


def _remove(path: str, process: int) -> None:
    """Remove a file at the end of the process that made it, but not in its forked children."""
    if os.getpid() == process:
        Path(path).unlink(missing_ok=True)
