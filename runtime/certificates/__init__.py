"""The proved error bound of a product."""
