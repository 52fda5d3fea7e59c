"""Probes: programs that find out how a GPU works and how fast it is, one file for each."""
