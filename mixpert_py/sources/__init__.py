"""Source text in, rewritten text or code out; files and the projects that they belong to."""
