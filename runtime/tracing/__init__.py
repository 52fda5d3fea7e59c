"""What products did: at which site, on which operands, how long, how far off, and why."""
