"""Any scheme in NumPy: what every scheme means."""
