"""What a command line left behind."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
# For child processes: this checkout first, then whatever this process was given.
IMPORTABLE = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


@dataclass(frozen=True)
class Said:
    """What a command left."""

    code: int
    out: str
    err: str

    def one_clear_line(self) -> str:
        """The only line on stderr, which is no traceback."""
        lines = self.err.strip().splitlines()
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err
        assert lines[0].startswith("mixpert: ")
        return lines[0]


Mixpert = Callable[..., Said]
