"""`python -m tests.soak GATE …`."""

from mixpert_py.cli import main
from tests.soak.command import soak

if __name__ == "__main__":
    main(soak, "python -m tests.soak")
