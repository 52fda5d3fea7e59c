"""How an outcome is shown: as a table, and as plain data."""
