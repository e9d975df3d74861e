"""Keeps attributes in typed columns, for filters."""
