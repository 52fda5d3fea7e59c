"""Which products can reach which others, by reaching definitions."""
