"""Measures Tandem: see README.md."""
