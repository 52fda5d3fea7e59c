"""How an outcome is shown: as a table, as plain data, as Markdown and as a page."""
