"""Reads and writes the file by which `tandem move` gives orchestrators another shard map."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from tandem.platform.files.json_object import FileInvalid, from_fields, read_object
from tandem.platform.files.whole_file import write_text_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedShards:
    """Names the shards to which all items of another shard map were moved."""

    version: int
    """Of the shard map."""
    index_addresses: tuple[str, ...]
    rerank_addresses: tuple[str, ...]
    moved_from_version: int
    moved_from_count: int

    @property
    def moved_from(self) -> tuple[int, int]:
        """Returns version and shard count of the map before."""
        return self.moved_from_version, self.moved_from_count

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Returns what the file holds, None without a file; raises FileInvalid."""
        if not path.exists():
            return None
        try:
            return from_fields(cls, read_object(path))
        except ValueError as error:
            raise FileInvalid(f"{path}: {error}") from error

    def write(self, path: Path) -> None:
        """Replaces the file atomically."""
        write_text_whole(path, json.dumps(asdict(self), indent=2) + "\n")
