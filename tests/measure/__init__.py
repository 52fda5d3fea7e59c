"""Measurements for docs/measured.md that no command makes: `python -m tests.measure.NAME`."""
