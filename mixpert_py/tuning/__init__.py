"""`mixpert tune` and `mixpert verify`: from a program and a budget to a plan that holds."""
