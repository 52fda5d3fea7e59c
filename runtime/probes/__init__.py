"""What a GPU is asked to find out what it does: one file per probe."""
