"""What is raised for files that must not be opened."""


class StoreRefused(Exception):
    """These files must not be opened as asked; the message says why and what to do."""


class StoreDamaged(StoreRefused):
    """The files are a store's, and not as they were written."""
