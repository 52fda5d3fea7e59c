"""Benchmarks: what the pages say about speed, each number reproduced by one command."""
