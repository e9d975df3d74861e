"""Defines the errors for files that must not be opened."""


class StoreRefused(Exception):
    """Raised for files that must not be opened; the message says why and what to do."""


class StoreDamaged(StoreRefused):
    """Raised for the files of a store that are damaged."""
