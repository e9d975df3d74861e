"""Puts a checkout's files into a wheel. An editable install gets none: it is the checkout.

hatchling's own force-include would copy them there too, where they hide the checkout.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PackagedFiles(BuildHookInterface):  # type: ignore[type-arg]
    """Includes what the table `files` of the hook names: path from here to path in the wheel.

    A name that ends in `*` is every file that begins so, and goes into a folder.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the files, unless the wheel is that of an editable install."""
        if version != "editable":
            for path, target in self.config["files"].items():
                build_data["force_include"].update(self._files(path, target))

    def _files(self, path: str, target: str) -> dict[str, str]:
        if not path.endswith("*"):
            return {path: target}
        start = Path(self.root, path)
        found = sorted(start.parent.glob(start.name))
        if not found:
            raise ValueError(f"no file begins as {path} does; name another one in pyproject.toml")
        return {str(each): f"{target}/{each.name}" for each in found}
