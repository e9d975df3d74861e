"""Checks that a checkpoint was trained for retrieval, by the class that its configuration names."""

from collections.abc import Mapping
from typing import Any

from tandem.model_io.json_object import shown
from tandem.modeling.families.published_folder import PublishedFolder
from tandem.modeling.published.files import CONFIG


def check_architecture(folder: PublishedFolder, fields: Mapping[str, Any], known: str) -> None:
    """Refuses a checkpoint whose `architectures` lack `known`; one that names none may pass.

    Models of one family share most weights, and one for captions or answers has no matching head.
    """
    named = fields.get("architectures")
    if named and (not isinstance(named, list) or known not in named):
        raise folder.refused(
            f"{CONFIG} has architectures {shown(named)}, and only {known} matches texts and "
            "pictures; take a checkpoint that was trained for retrieval"
        )
