"""The flow of values between the products of a module: its dependency graph."""
