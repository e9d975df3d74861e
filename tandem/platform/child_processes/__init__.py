"""Starts child processes that end with their parent."""
