"""Mistakes that the tests must find: `python -m tests.mutants` makes each and runs the tests."""
