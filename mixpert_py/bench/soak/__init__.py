"""`mixpert bench soak`: gates that a release has to pass, each a command of its own."""
