"""Keeps a move in two files: how far it is, and the shard map that orchestrators follow then."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from tandem.platform.files.json_object import FileInvalid, from_fields, read_object
from tandem.platform.files.whole_file import write_text_whole

_T = TypeVar("_T")


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
    """Says how far a move between these stores is, so that one that was killed continues."""

    target_ids: tuple[str, ...] = ()
    """The targets' store ids."""
    sources: tuple[SourceProgress, ...] = ()
    is_sealed: bool = False
    """Whether all sources refuse writes for good, and the targets have all items."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedShards:
    """Names the shards to which all items of another shard map were moved."""

    version: int
    """Of the shard map."""
    index_addresses: tuple[str, ...]
    rerank_addresses: tuple[str, ...]
    moved_from_version: int
    moved_from_count: int
    next_rerank_addresses: tuple[str, ...] = ()
    """Of a second model, if orchestrators have one."""

    @property
    def moved_from(self) -> tuple[int, int]:
        """Returns version and shard count of the map before."""
        return self.moved_from_version, self.moved_from_count


def read_move_file(path: Path, kind: type[_T]) -> _T | None:
    """Returns what the file holds, None without a file; raises FileInvalid."""
    if not path.exists():
        return None
    try:
        return from_fields(kind, read_object(path))
    except ValueError as error:
        raise FileInvalid(f"{path} is no file of tandem move: {error}") from error


def write_move_file(path: Path, content: Any, mode: int = 0o644) -> None:  # noqa: ANN401 (a dataclass)
    """Replaces the file atomically."""
    write_text_whole(path, json.dumps(asdict(content), indent=2) + "\n", mode)
