"""`tandem search --json`: prints answers as one JSON object with every field of the SDK."""

from __future__ import annotations

import enum
import json
import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from tandem.client import SearchResult
from tandem.contract.content import ImageContent, TextContent
from tandem.contract.regions import RegionContent
from tandem.errors import TandemError

_REGION_BYTES = ("features_base64", "boxes_base64")


def result_json(result: SearchResult, files: Mapping[str, Path]) -> dict[str, Any]:
    """Returns an answer with the SDK's names; a saved item has its path under "file".

    Bytes are base64, and left out for saved items. Numbers that are not finite are null.
    """
    answer: dict[str, Any] = _plain(result)
    for item in answer["items"]:
        if (path := files.get(item["item_id"])) is not None:
            item["file"] = str(path)
            if item["content"] is not None:
                item["content"].pop("image_base64", None)
                for name in _REGION_BYTES:
                    item["content"].get("regions", {}).pop(name, None)
    return answer


def error_json(error: TandemError) -> dict[str, Any]:
    """Returns an error: reason, message and metadata."""
    return {"reason": error.reason, "message": error.message, "metadata": error.metadata}


def json_text(value: Mapping[str, Any]) -> str:
    """Returns one line of ASCII, which any terminal and encoding preserves."""
    return json.dumps(value, allow_nan=False)


def _regions(content: RegionContent) -> dict[str, Any]:
    """Returns counts as numbers and both arrays as base64."""
    return {
        "region_count": content.region_count,
        "feature_width": content.feature_width,
        "image_width": content.image_width,
        "image_height": content.image_height,
        **{
            name: b64encode(values).decode()
            for name, values in zip(_REGION_BYTES, (content.features, content.boxes), strict=True)
        },
    }


def _plain(value: object) -> Any:  # noqa: ANN401
    match value:
        case TextContent(text):
            return {"text": text}
        case ImageContent(image_bytes):
            return {"image_base64": b64encode(image_bytes).decode()}
        case RegionContent():
            return {"regions": _regions(value)}
        case enum.Enum():
            return value.value
        case bytes():
            return b64encode(value).decode()
        case float():
            return value if math.isfinite(value) else None
        case str() | int() | None:
            return value
        case Mapping():
            return {str(name): _plain(each) for name, each in value.items()}
        case Sequence():
            return [_plain(each) for each in value]
    assert is_dataclass(value)
    return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
