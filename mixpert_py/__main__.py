"""`python -m mixpert_py` is the same as `mixpert`."""

import os
import sys


def main() -> None:
    """Run the command line with none of the current folder's modules in the way of ours.

    `python -m` puts that folder first in sys.path, where a `click.py` of the user's would be run.
    """
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    from mixpert_py.cli import main

    main()


if __name__ == "__main__":
    main()
