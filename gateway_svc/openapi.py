"""Describes the HTTP API in OpenAPI 3.1: schemas of the contract's messages, and the document."""

import json
from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from gateway_svc.upstream import METHODS
from tandem.installation import __version__

Schema = dict[str, Any]

_API_DESCRIPTION = (
    "Tandem finds images by text and texts by images. Errors are problem details with the reasons "
    "of the gRPC API."
)
_KINDS = FieldDescriptor
_WELL_KNOWN: dict[str, Schema] = {
    "google.protobuf.Duration": {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?s$"},
}


def openapi_document(operations: Mapping[str, tuple[str, Schema]]) -> bytes:
    """Returns the document of operations, each a name and a description, by their routes."""
    paths: dict[str, dict[str, Schema]] = {}
    operation_ids: set[str] = set()
    for route, (name, description) in operations.items():
        http_method, path = route.split()
        operation_id = f"{name}_{http_method}".lower()
        if operation_id in operation_ids:
            # The same at the path of another version.
            operation_id += f"_{path.split('/')[1]}"
        operation_ids.add(operation_id)
        described = {"operationId": operation_id, **description}
        paths.setdefault(path.replace(":id}", "}"), {})[http_method.lower()] = described
    return json.dumps(
        {
            "openapi": "3.1.0",
            "info": {"title": "Tandem", "version": __version__, "description": _API_DESCRIPTION},
            "paths": paths,
            "components": {
                "schemas": _components(),
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{}, {"token": []}],
        }
    ).encode()


def reference(message_class: type[Message]) -> Schema:
    """Returns a reference to the schema of a message of the contract."""
    return _reference(message_class.DESCRIPTOR)


def fields(message_class: type[Message], *names: str) -> dict[str, Schema]:
    """Returns the schemas of the fields of these names, or of all, by the proto's name."""
    described = message_class.DESCRIPTOR.fields
    return {each.name: _of_field(each) for each in described if not names or each.name in names}


def closed_object(members: dict[str, Schema], required: list[str] | None = None) -> Schema:
    """Returns the schema of an object with these members and no others."""
    schema: Schema = {"type": "object", "properties": members, "additionalProperties": False}
    return schema | {"required": required} if required else schema


def json_body(schema: Schema) -> Schema:
    """Returns a request body of JSON."""
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def json_answer(schema: Schema, description: str = "The answer") -> Schema:
    """Returns a response of JSON."""
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def problem_answer(description: str) -> Schema:
    """Returns a response of problem details (RFC 9457)."""
    return {"description": description, "content": {"application/problem+json": {"schema": _FAULT}}}


def parameter(name: str, place: str, schema: Schema, description: str) -> Schema:
    """Returns a parameter; one in the path is required."""
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "schema": schema,
        "description": description,
    }


def _components() -> dict[str, Schema]:
    """Returns the schemas of all messages of the contract, by name."""
    found: dict[str, Schema] = {"ContentForm": _CONTENT, "Problem": _PROBLEM}
    waiting: list[Any] = [
        kind.DESCRIPTOR
        for method in METHODS.values()
        for kind in (method.request_class, method.answer_class)
    ]
    while waiting:
        kind = waiting.pop()
        if kind.name in found or kind.full_name in _WELL_KNOWN:
            continue
        if not kind.GetOptions().map_entry:
            found[kind.name] = closed_object({each.name: _of_field(each) for each in kind.fields})
        waiting += [each.message_type for each in kind.fields if each.message_type is not None]
    found["AttributeValue"] = {"anyOf": [*_PLAIN_ATTRIBUTES, found["AttributeValue"]]}
    return found


def _reference(kind: Any) -> Schema:  # noqa: ANN401 (two classes of descriptors)
    return _WELL_KNOWN.get(kind.full_name) or {"$ref": f"#/components/schemas/{kind.name}"}


def _of_field(field: FieldDescriptor) -> Schema:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value = field.message_type.fields_by_name["value"]
        return {"type": "object", "additionalProperties": _of_value(value)}
    if field.is_repeated:
        return {"type": "array", "items": _of_value(field)}
    return _of_value(field)


def _of_value(field: FieldDescriptor) -> Schema:
    if field.message_type is not None:
        return _reference(field.message_type)
    if field.enum_type is not None:
        return {"type": "string", "enum": [each.name for each in field.enum_type.values]}
    return _PLAIN[field.type]


# Written as a text, because JSON's numbers of many readers have 53 bits.
_LONG: Schema = {"type": ["string", "integer"], "pattern": "^-?[0-9]+$"}
_PLAIN: dict[int, Schema] = {
    _KINDS.TYPE_INT32: {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1},
    _KINDS.TYPE_UINT32: {"type": "integer", "minimum": 0, "maximum": 2**32 - 1},
    _KINDS.TYPE_INT64: _LONG,
    _KINDS.TYPE_UINT64: _LONG,
    _KINDS.TYPE_DOUBLE: {"type": "number"},
    _KINDS.TYPE_FLOAT: {"type": "number"},
    _KINDS.TYPE_BOOL: {"type": "boolean"},
    _KINDS.TYPE_STRING: {"type": "string"},
    _KINDS.TYPE_BYTES: {"type": "string", "contentEncoding": "base64"},
}
_PLAIN_ATTRIBUTES: list[Schema] = [
    {"type": ["string", "number", "boolean"], "description": "As /v1 writes and reads it."},
    {"type": "array", "items": {"type": "string"}},
]
TEXT: Schema = {"type": "string"}
CONTENT: Schema = {"$ref": "#/components/schemas/ContentForm"}
"""The forms of a content that /v1 reads."""

_FAULT: Schema = {"$ref": "#/components/schemas/Problem"}
_CONTENT: Schema = {
    "description": "A text, or a picture in base64 or as a data: URI. URLs are refused.",
    "anyOf": [
        TEXT,
        closed_object({"text": TEXT, "type": {"const": "text"}}, ["text"]),
        closed_object({"image": {"type": "string", "contentEncoding": "base64"}}, ["image"]),
        closed_object(
            {
                "type": {"const": "image_url"},
                "image_url": {
                    "type": "object",
                    "properties": {"url": {"type": "string", "pattern": "^data:"}},
                    "required": ["url"],
                },
            },
            ["image_url"],
        ),
        closed_object({"regions": {"type": "object"}}, ["regions"]),
    ],
}
_PROBLEM: Schema = {
    "type": "object",
    "description": "Problem details (RFC 9457), with the reason that gRPC has.",
    "properties": {
        "type": TEXT,
        "title": TEXT,
        "status": {"type": "integer"},
        "detail": TEXT,
        "reason": TEXT,
        "request_id": TEXT,
        "metadata": {"type": "object", "additionalProperties": TEXT},
    },
    "required": ["type", "title", "status", "detail", "reason"],
}
