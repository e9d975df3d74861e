"""Makes JSON Schemas of protobuf messages, as `json_message` reads and writes them."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

Schema = dict[str, Any]

_KINDS = FieldDescriptor
_INTEGERS = {
    _KINDS.TYPE_INT32,
    _KINDS.TYPE_SINT32,
    _KINDS.TYPE_SFIXED32,
}
_COUNTS = {_KINDS.TYPE_UINT32, _KINDS.TYPE_FIXED32}
_LONGS = {
    _KINDS.TYPE_INT64,
    _KINDS.TYPE_UINT64,
    _KINDS.TYPE_SINT64,
    _KINDS.TYPE_FIXED64,
    _KINDS.TYPE_SFIXED64,
}
_WELL_KNOWN: dict[str, Schema] = {
    "google.protobuf.Duration": {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?s$"},
}

CONTENT_NAME, PROBLEM_NAME = "ContentForm", "Problem"


class Schemas:
    """Collects the schemas that a document refers to."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {CONTENT_NAME: _CONTENT, PROBLEM_NAME: _PROBLEM}

    def of(self, message_class: type[Message]) -> Schema:
        """Returns a reference to the schema of a message."""
        return self._of_descriptor(message_class.DESCRIPTOR)

    def members(self, message_class: type[Message]) -> dict[str, Schema]:
        """Returns the schema of each field by the proto's name."""
        return {each.name: self._of_field(each) for each in message_class.DESCRIPTOR.fields}

    def only(self, message_class: type[Message], *names: str) -> dict[str, Schema]:
        """Returns the schemas of these fields."""
        members = self.members(message_class)
        return {name: members[name] for name in names}

    def content(self) -> Schema:
        """Returns a reference to the forms of a content that /v1 reads."""
        return _reference(CONTENT_NAME)

    def _of_descriptor(self, descriptor: Any) -> Schema:  # noqa: ANN401 (two classes of it)
        if descriptor.full_name in _WELL_KNOWN:
            return _WELL_KNOWN[descriptor.full_name]
        if descriptor.name not in self.components:
            self.components[descriptor.name] = {}  # Filters nest filters.
            self.components[descriptor.name] = {
                "type": "object",
                "properties": {each.name: self._of_field(each) for each in descriptor.fields},
                "additionalProperties": False,
            }
            if descriptor.full_name == "tandem.v1.AttributeValue":
                typed = self.components[descriptor.name]
                self.components[descriptor.name] = {"anyOf": [*_PLAIN_ATTRIBUTES, typed]}
        return _reference(descriptor.name)

    def _of_field(self, field: FieldDescriptor) -> Schema:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value = field.message_type.fields_by_name["value"]
            return {"type": "object", "additionalProperties": self._of_value(value)}
        if field.is_repeated:
            return {"type": "array", "items": self._of_value(field)}
        return self._of_value(field)

    def _of_value(self, field: FieldDescriptor) -> Schema:
        if field.message_type is not None:
            return self._of_descriptor(field.message_type)
        if field.enum_type is not None:
            return {"type": "string", "enum": [each.name for each in field.enum_type.values]}
        if field.type in _INTEGERS:
            return {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}
        if field.type in _COUNTS:
            return {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}
        if field.type in _LONGS:
            # Written as a text, because JSON's numbers of many readers have 53 bits.
            return {"type": ["string", "integer"], "pattern": "^-?[0-9]+$"}
        return _PLAIN[field.type]


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
    schema = {"$ref": f"#/components/schemas/{PROBLEM_NAME}"}
    return {"description": description, "content": {"application/problem+json": {"schema": schema}}}


def parameter(name: str, place: str, schema: Schema, description: str) -> Schema:
    """Returns a parameter; one in the path is required."""
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "schema": schema,
        "description": description,
    }


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_PLAIN: dict[int, Schema] = {
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
_CONTENT: Schema = {
    "description": "A text, or a picture in base64 or as a data: URI. URLs are refused.",
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"text": {"type": "string"}, "type": {"const": "text"}},
            "required": ["text"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"image": {"type": "string", "contentEncoding": "base64"}},
            "required": ["image"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {
                "type": {"const": "image_url"},
                "image_url": {
                    "type": "object",
                    "properties": {"url": {"type": "string", "pattern": "^data:"}},
                    "required": ["url"],
                },
            },
            "required": ["image_url"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"regions": {"type": "object"}},
            "required": ["regions"],
            "additionalProperties": False,
        },
    ],
}
_PROBLEM: Schema = {
    "type": "object",
    "description": "Problem details (RFC 9457), with the reason that gRPC has.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "reason": {"type": "string"},
        "request_id": {"type": "string"},
        "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["type", "title", "status", "detail", "reason"],
}
