"""What is raised for files that must not be opened."""


class StoreRefused(Exception):
    """These files must not be opened as asked; the message says why and what to do."""
