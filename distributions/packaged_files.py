"""Puts a checkout's files into a wheel. An editable install gets none: it is the checkout.

hatchling's own force-include would copy them there too, where they hide the checkout.
"""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PackagedFiles(BuildHookInterface):  # type: ignore[type-arg]
    """Includes what the table `files` of the hook names: path from here to path in the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the files, unless the wheel is that of an editable install."""
        if version != "editable":
            build_data["force_include"].update(self.config["files"])
