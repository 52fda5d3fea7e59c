"""The tables and figures of five papers, measured here: `python -m samples.papers`."""
