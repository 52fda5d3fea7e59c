"""A user's program, rewritten in memory and run in this process."""
