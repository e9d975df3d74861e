"""A start that cannot work, found before anything is started."""


class StartRefused(ValueError):
    """The message says what is wrong, in the user's words, and what mends it."""
