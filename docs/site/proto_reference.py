"""Writes one reference page for each proto file, from its comments.

protoc parses the files; this walks its descriptor set, whose source info holds the comments.
"""

import sys
import tempfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)
from grpc_tools import protoc

# Field numbers of descriptor.proto, which the paths of source info are made of.
FILE_MESSAGES, FILE_ENUMS, FILE_SERVICES = 4, 5, 6
MESSAGE_FIELDS, MESSAGE_MESSAGES, MESSAGE_ENUMS = 2, 3, 4
ENUM_VALUES, SERVICE_METHODS = 2, 2

Comments = dict[tuple[int, ...], str]


def write_proto_pages(protos: Path, folder: Path) -> list[str]:
    """Writes `folder`/<name>.md for each file in `protos`, and returns the names in order."""
    sources = sorted(str(path) for path in protos.rglob("*.proto"))
    described = [each for each in _parse(protos, sources).file if each.package.startswith("tandem")]
    pages = {
        f".{each.package}.{name}": Path(each.name).stem
        for each in described
        for name in _type_names(each)
    }
    folder.mkdir(parents=True, exist_ok=True)
    for each in described:
        stem = Path(each.name).stem
        text = "\n".join(_Page(each, stem, pages).lines())
        (folder / f"{stem}.md").write_text(text + "\n", encoding="utf-8")
    return [Path(each.name).stem for each in described]


def _parse(protos: Path, sources: Sequence[str]) -> FileDescriptorSet:
    """Returns the files' descriptors with comments; exits if protoc rejects one."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "protos.pb"
        includes = [f"-I{protos}", f"-I{files('grpc_tools') / '_proto'}"]
        flags = ["--include_source_info", "--include_imports", f"--descriptor_set_out={output}"]
        if protoc.main(["protoc", *includes, *flags, *sources]) != 0:
            sys.exit("protoc could not parse the protos")
        return FileDescriptorSet.FromString(output.read_bytes())


def _type_names(file: FileDescriptorProto) -> list[str]:
    """Returns the names of all messages and enums of a file, nested ones with their parents."""
    names = [each.name for each in file.enum_type]
    remaining = [("", each) for each in file.message_type]
    while remaining:
        prefix, message = remaining.pop()
        names.append(prefix + message.name)
        names += [f"{prefix}{message.name}.{each.name}" for each in message.enum_type]
        remaining += [(f"{prefix}{message.name}.", each) for each in message.nested_type]
    return names


class _Page:
    """Renders one proto file as Markdown."""

    def __init__(self, file: FileDescriptorProto, stem: str, pages: dict[str, str]) -> None:
        self._file = file
        self._stem = stem
        self._pages = pages
        self._map_entries = {
            f".{file.package}.{message.name}.{nested.name}": nested
            for message in file.message_type
            for nested in message.nested_type
            if nested.options.map_entry
        }
        self._comments: Comments = {
            tuple(place.path): place.leading_comments or place.trailing_comments
            for place in file.source_code_info.location
            if place.leading_comments or place.trailing_comments
        }

    def lines(self) -> list[str]:
        """Returns services first, then messages and enums in the file's order."""
        lines = [f"# {self._file.name}", "", f"Package `{self._file.package}`."]
        for number, service in enumerate(self._file.service):
            lines += self._service(service, (FILE_SERVICES, number))
        for number, message in enumerate(self._file.message_type):
            lines += self._message(message, (FILE_MESSAGES, number), "")
        for number, enum in enumerate(self._file.enum_type):
            lines += self._enum(enum, (FILE_ENUMS, number), "")
        return lines

    def _service(self, service: ServiceDescriptorProto, path: tuple[int, ...]) -> list[str]:
        lines = ["", f"## {service.name}", "", self._text(path)]
        for number, method in enumerate(service.method):
            request = self._link(method.input_type, is_stream=method.client_streaming)
            response = self._link(method.output_type, is_stream=method.server_streaming)
            text = self._text((*path, SERVICE_METHODS, number))
            lines += ["", f"### {method.name}", "", f"{request} → {response}", "", text]
        return lines

    def _message(self, message: DescriptorProto, path: tuple[int, ...], prefix: str) -> list[str]:
        name = prefix + message.name
        lines = ["", f"## {name}", "", self._text(path)]
        if message.field:
            lines += ["", "| field | number | type | meaning |", "| --- | ---: | --- | --- |"]
        for number, field in enumerate(message.field):
            meaning = self._cell((*path, MESSAGE_FIELDS, number))
            if field.HasField("oneof_index") and not field.proto3_optional:
                oneof = message.oneof_decl[field.oneof_index].name
                meaning = f"One of `{oneof}`. {meaning}"
            lines.append(f"| `{field.name}` | {field.number} | {self._type(field)} | {meaning} |")
        for number, enum in enumerate(message.enum_type):
            lines += self._enum(enum, (*path, MESSAGE_ENUMS, number), f"{name}.")
        for number, nested in enumerate(message.nested_type):
            if nested.options.map_entry:
                continue
            lines += self._message(nested, (*path, MESSAGE_MESSAGES, number), f"{name}.")
        return lines

    def _enum(self, enum: EnumDescriptorProto, path: tuple[int, ...], prefix: str) -> list[str]:
        lines = ["", f"## {prefix}{enum.name}", "", self._text(path), ""]
        lines += ["| value | number | meaning |", "| --- | ---: | --- |"]
        for number, value in enumerate(enum.value):
            meaning = self._cell((*path, ENUM_VALUES, number))
            lines.append(f"| `{value.name}` | {value.number} | {meaning} |")
        return lines

    def _type(self, field: FieldDescriptorProto) -> str:
        entry = self._map_entries.get(field.type_name)
        if entry is not None:
            key, value = (self._type(each) for each in entry.field)
            return f"map of {key} to {value}"
        if field.type_name:
            name = self._link(field.type_name)
        else:
            name = f"`{FieldDescriptorProto.Type.Name(field.type).removeprefix('TYPE_').lower()}`"
        if field.label == FieldDescriptorProto.LABEL_REPEATED:
            return f"repeated {name}"
        return f"optional {name}" if field.proto3_optional else name

    def _link(self, type_name: str, *, is_stream: bool = False) -> str:
        """Returns a link to a type of ours, or the name of another's."""
        name = type_name.removeprefix(f".{self._file.package}.")
        text = f"`{name.removeprefix('.')}`"
        if type_name in self._pages:
            page = self._pages[type_name]
            anchor = name.replace(".", "").lower()
            text = f"[{text}]({'' if page == self._stem else f'{page}.md'}#{anchor})"
        return f"stream {text}" if is_stream else text

    def _text(self, path: tuple[int, ...]) -> str:
        """Returns an element's comment, safe as Markdown."""
        lines = (line.strip() for line in self._comments.get(path, "").splitlines())
        return "\n".join(lines).strip().replace("<", "&lt;").replace("[", "\\[")

    def _cell(self, path: tuple[int, ...]) -> str:
        return " ".join(self._text(path).replace("|", "\\|").split())
