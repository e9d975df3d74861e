"""Finds files of deploy/ that a local Tandem uses, in a checkout or an installed wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).parent


def deployed_folder(name: str) -> Path:
    """Returns a folder of deploy/, such as triton/backends: a wheel has it in the package."""
    in_wheel = _PACKAGE / "deployed" / name
    return in_wheel if in_wheel.is_dir() else _PACKAGE.parent / "deploy" / name
