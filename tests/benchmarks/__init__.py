"""Benchmarks: what the pages say about speed and accuracy, each table made by one command."""
