"""Loads, models and servers that several benchmarks share."""
