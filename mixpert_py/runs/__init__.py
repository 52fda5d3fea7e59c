"""Runs of a user's program, each in a process of its own, on this machine or others."""
