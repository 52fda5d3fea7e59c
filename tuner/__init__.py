"""The search for the fastest plan within a budget, its error criteria, and its report."""
