"""Runs a rewritten program as `__main__`, and says what its products did."""
