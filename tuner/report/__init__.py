"""The outcome of a tuning as a table, plain data, Markdown and an HTML page."""
