"""`python -m mixpert_py` is the same as `mixpert`."""

from mixpert_py.cli import main

if __name__ == "__main__":
    main()
