"""Ingests and removes items."""
