"""The outcome of a tuning as a table, as plain data, as Markdown and as a page."""
