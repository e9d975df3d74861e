"""Reads modules.json, in which sentence-transformers and MMT-Retrieval list a model's steps."""

import json
from dataclasses import dataclass
from typing import Any, Final

from tandem.model_io.json_object import FileInvalid, check_file, shown
from tandem.modeling.families.published_folder import PublishedFolder
from tandem.modeling.published.files import CONFIG

MODULES: Final = "modules.json"
NORMALIZE: Final = "Normalize"
_PACKAGE: Final = "sentence_transformers."
# What a step reads and writes; newer files may name another.
_STREAM: Final = "sentence_embedding"


@dataclass(frozen=True, slots=True)
class ModuleEntry:
    """Names one step: its class, and its folder, empty for the model's own."""

    class_name: str
    """With its package, as "sentence_transformers.models.Pooling"."""
    path: str

    @property
    def kind(self) -> str:
        """The class without its package."""
        return self.class_name.rpartition(".")[2]


def read_modules(folder: PublishedFolder) -> list[ModuleEntry]:
    """Returns the steps in order; refuses a file of another form."""
    path = folder.file(MODULES)
    try:
        check_file(path)
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (FileInvalid, OSError, ValueError, RecursionError) as error:
        raise folder.malformed(f"{MODULES} is not a list of modules: {error}") from error
    if not isinstance(rows, list) or not rows:
        raise folder.malformed(f"{MODULES} is not a list of modules: it holds {shown(rows)}")
    return [_entry(folder, row) for row in rows]


def read_library_modules(folder: PublishedFolder) -> list[ModuleEntry]:
    """Returns the steps in order; also refuses classes that are not sentence-transformers' own."""
    entries = read_modules(folder)
    for each in entries:
        if not each.class_name.startswith(_PACKAGE):
            raise folder.unserved(
                f"{MODULES} asks for code of the checkpoint ({shown(each.class_name)}), which is "
                "never run"
            )
    return entries


def check_step(folder: PublishedFolder) -> None:
    """Refuses a step, in a folder of its own, that reads or writes other than the embedding."""
    fields = folder.optional_fields(CONFIG)
    for name in ("module_input_name", "module_output_name"):
        if fields.get(name) not in (None, _STREAM):
            raise folder.unserved(
                f"{name} is {shown(fields[name])}, and only steps of {_STREAM} are served"
            )


def _entry(folder: PublishedFolder, row: Any) -> ModuleEntry:  # noqa: ANN401  of a file
    if not isinstance(row, dict):
        raise folder.malformed(f"{MODULES} holds {shown(row)}, not an object for each module")
    class_name, path = row.get("type"), row.get("path", "")
    if not isinstance(class_name, str) or not isinstance(path, str):
        raise folder.malformed(f"{MODULES} has a module without type and path: {shown(row)}")
    return ModuleEntry(class_name, path)
