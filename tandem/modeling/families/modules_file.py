"""Reads modules.json, in which sentence-transformers lists the steps of a model."""

import json
from dataclasses import dataclass
from typing import Any, Final

from tandem.model_io.json_object import FileInvalid, check_file, shown
from tandem.modeling.families.published_folder import PublishedFolder

MODULES: Final = "modules.json"
_PACKAGE: Final = "sentence_transformers."


@dataclass(frozen=True, slots=True)
class ModuleEntry:
    """Names one step: its kind, as "Pooling", and its folder, empty for the model's own."""

    kind: str
    path: str


def read_modules(folder: PublishedFolder) -> list[ModuleEntry]:
    """Returns the steps in order; refuses code of the checkpoint, and a file of another form."""
    path = folder.file(MODULES)
    try:
        check_file(path)
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (FileInvalid, OSError, ValueError, RecursionError) as error:
        raise folder.refused(f"{MODULES} cannot be read: {error}") from error
    if not isinstance(rows, list) or not rows:
        raise folder.refused(f"{MODULES} holds {shown(rows)}, and no list of modules")
    return [_entry(folder, row) for row in rows]


def _entry(folder: PublishedFolder, row: Any) -> ModuleEntry:  # noqa: ANN401  of a file
    if not isinstance(row, dict):
        raise folder.refused(f"{MODULES} holds {shown(row)}, not an object for each module")
    kind, path = row.get("type"), row.get("path", "")
    if not isinstance(kind, str) or not isinstance(path, str):
        raise folder.refused(f"{MODULES} has a module without type and path: {shown(row)}")
    if not kind.startswith(_PACKAGE):
        raise folder.refused(
            f"{MODULES} asks for code of the checkpoint ({shown(kind)}), which is never run"
        )
    return ModuleEntry(kind.rpartition(".")[2], path)
