"""The processes in which a user's program is run, and what is read of them."""
