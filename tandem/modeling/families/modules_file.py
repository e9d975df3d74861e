"""Reads modules.json, in which sentence-transformers and MMT-Retrieval list a model's steps."""

import json
from dataclasses import dataclass
from typing import Final

from tandem.modeling.published.files import CONFIG, MODULES
from tandem.modeling.published.folder import PublishedFolder
from tandem.platform.files.json_object import check_file, shown

NORMALIZE: Final = "Normalize"
_PACKAGE: Final = "sentence_transformers."
# What a step reads and writes; newer files may name another.
_STREAM: Final = (None, "sentence_embedding")
_SERVED_STEP: Final = {"module_input_name": _STREAM, "module_output_name": _STREAM}


@dataclass(frozen=True, slots=True)
class ModuleEntry:
    """Names one step: its class, and its folder, empty for the model's own."""

    class_name: str
    """With its package, as "sentence_transformers.models.Pooling"."""
    path: str

    @property
    def kind(self) -> str:
        return self.class_name.rpartition(".")[2]


def read_modules(folder: PublishedFolder) -> list[ModuleEntry]:
    """Returns the steps in order; refuses a file of another form."""
    with folder.reading(f"{MODULES} is not a list of modules"):
        check_file(path := folder.file(MODULES))
        rows = json.loads(path.read_text(encoding="utf-8"))
        return [ModuleEntry(str(row["type"]), str(row.get("path", ""))) for row in rows]


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
    folder.check_served(folder.optional_fields(CONFIG), _SERVED_STEP)
