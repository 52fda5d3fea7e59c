"""Benchmarks: what the README says about speed, each number reproduced by one command."""
