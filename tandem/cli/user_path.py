"""Paths as a person writes them."""

from pathlib import Path


def user_path(text: str) -> Path:
    """Returns the path, "~" and "~user" as the folder they stand for.

    Raises ValueError where there is no such folder: a user who is not there, or none that has one.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ValueError(
            f"{text}: there is no home that {Path(text).parts[0]} stands for; write the whole path"
        ) from None
