"""`--json`: prints what a command found as one JSON object, by the names of its fields."""

import enum
import functools
import inspect
import json
import math
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from tandem.cli.options import with_signature
from tandem.cli.terminal.console import out
from tandem.contract.content import ImageContent, TextContent
from tandem.contract.regions import RegionContent

Function = TypeVar("Function", bound=Callable[..., None])

REGION_BYTES = ("features_base64", "boxes_base64")
_JSON = Annotated[bool, typer.Option("--json", help="print one JSON object instead")]


def with_json(command: Function) -> Function:
    """Returns the command with the option `--json`; it gives what it found to `answer`."""

    @functools.wraps(command)
    def answering(*, as_json: bool = False, **options: Any) -> None:  # noqa: ANN401
        out.is_held_back = as_json
        try:
            command(**options)
        finally:
            out.is_held_back = False

    signature = inspect.signature(command, eval_str=True)
    option = inspect.Parameter(
        "as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_JSON
    )
    return with_signature(answering, [*signature.parameters.values(), option])  # type: ignore[return-value]


def answer(found: Mapping[str, object]) -> None:
    """Prints the JSON object, if `--json` is given."""
    if out.is_held_back:
        out.file.write(json_text(plain(found)) + "\n")


def event(name: str, said: Mapping[str, object]) -> None:
    """Prints a line of JSON before the last one, which is the answer, if `--json` is given."""
    answer({"event": name, **said})


def json_text(value: Mapping[str, Any]) -> str:
    """Returns one line of ASCII, which any terminal and encoding preserves."""
    return json.dumps(value, allow_nan=False)


def plain(value: object) -> Any:  # noqa: ANN401
    """Returns what JSON can hold: bytes in base64, numbers that are not finite as null."""
    match value:
        case TextContent(text):
            return {"text": text}
        case ImageContent(image_bytes):
            return {"image_base64": b64encode(image_bytes).decode()}
        case RegionContent():
            shape = ("region_count", "feature_width", "image_width", "image_height")
            numbers = {name: getattr(value, name) for name in shape}
            arrays = zip(REGION_BYTES, (value.features, value.boxes), strict=True)
            return {"regions": numbers | {name: plain(each) for name, each in arrays}}
        case enum.Enum():
            return value.value
        case bytes():
            return b64encode(value).decode()
        case Path():
            return str(value)
        case float():
            return value if math.isfinite(value) else None
        case str() | int() | None:
            return value
        case Mapping():
            return {str(name): plain(each) for name, each in value.items()}
        case Sequence():
            return [plain(each) for each in value]
    assert is_dataclass(value)
    return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
