"""Arrays to arrays: schemes, the reference backend, and the dispatch that chooses who runs."""
