"""A measure and a budget to a plan: profile, search, criteria, report."""
