"""How values flow between the products of a module: its dependency graph."""
