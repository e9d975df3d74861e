"""`tandem search --json`: prints answers as one JSON object with every field of the SDK."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tandem.cli.plain_json import REGION_BYTES, plain
from tandem.client import SearchResult
from tandem.errors import TandemError


def result_json(result: SearchResult, files: Mapping[str, Path]) -> dict[str, Any]:
    """Returns an answer with the SDK's names; a saved item has its path under "file".

    Bytes are base64, and left out for saved items. Numbers that are not finite are null.
    """
    answer: dict[str, Any] = plain(result)
    for item in answer["items"]:
        if (path := files.get(item["item_id"])) is not None:
            item["file"] = str(path)
            if item["content"] is not None:
                item["content"].pop("image_base64", None)
                for name in REGION_BYTES:
                    item["content"].get("regions", {}).pop(name, None)
    return answer


def error_json(error: TandemError) -> dict[str, Any]:
    """Returns an error: reason, message and metadata."""
    return {"reason": error.reason, "message": error.message, "metadata": error.metadata}
