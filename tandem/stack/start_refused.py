"""Defines the error of a start that cannot work."""


class StartRefused(ValueError):
    """A start that cannot work; the message says why, and what fixes it."""
