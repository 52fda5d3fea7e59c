"""Random products, each held against the bounds that its scheme states."""
