"""`python -m mixpert_py` is the same as `mixpert`."""

import os
import sys


def main() -> None:
    """The console script. Ctrl-C while the command line is imported ends in one line, too."""
    try:
        from mixpert_py.cli import main
    except KeyboardInterrupt:
        print("mixpert: interrupted", file=sys.stderr)
        sys.exit(130)
    main()


if __name__ == "__main__":
    # `python -m` puts the current folder first, where a `click.py` of the user's would be run.
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    main()
