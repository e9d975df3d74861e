"""Processes that run beside their parent on one machine, and no longer than it."""
