"""The reference backend: every scheme in NumPy, which defines the scheme's meaning."""
