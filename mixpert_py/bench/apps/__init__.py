"""`mixpert bench apps`: whole programs, natively and rewritten."""
