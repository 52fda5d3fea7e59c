"""`mixpert bench papers`: what five papers show, measured here and set beside their numbers."""
