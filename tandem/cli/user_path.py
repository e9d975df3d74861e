"""Expands paths that a user typed."""

from pathlib import Path


def user_path(text: str) -> Path:
    """Returns the path with "~" and "~user" expanded.

    Raises ValueError if there is no such home folder.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ValueError(
            f"{text}: there is no home folder for {Path(text).parts[0]}; write the whole path"
        ) from None
