"""Probes: they find out how large and how fast a GPU is, for its device model."""
