"""`mixpert bench products`: random products held against the bounds that their schemes state."""
