"""Keeps in a file how far a move is, so that one that was killed continues."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from tandem.platform.files.json_object import FileInvalid, from_fields, read_object
from tandem.platform.files.whole_file import write_text_whole


@dataclass(slots=True)
class SourceProgress:
    """Says how far one source is copied and followed."""

    store_id: str
    sequence: int
    """The change up to which it is followed; at first where the log stood before the copy."""
    index_id: str = ""
    """The index that is being copied."""
    item_id: str = ""
    """The last item of it that is copied."""
    is_copied: bool = False


@dataclass(slots=True)
class MoveProgress:
    """Says how far a move between these stores is."""

    path: Path
    target_ids: Sequence[str]
    """The targets' store ids."""
    sources: Sequence[SourceProgress]
    is_sealed: bool = False
    """Whether all sources refuse writes for good, and the targets have all items."""

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Returns what the file holds, None without a file; raises FileInvalid."""
        if not path.exists():
            return None
        try:
            content = read_object(path)
            sources = [from_fields(SourceProgress, each) for each in content["sources"]]
            return cls(path, content["target_ids"], sources, content["is_sealed"])
        except (ValueError, TypeError, KeyError) as error:
            raise FileInvalid(f"{path} is no file of tandem move: {error!r}") from error

    def save(self) -> None:
        """Replaces the file atomically."""
        content = asdict(self) | {"path": str(self.path)}
        write_text_whole(self.path, json.dumps(content, indent=2) + "\n", mode=0o600)
