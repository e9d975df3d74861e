"""Reads and writes the manifest of a backup."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from tandem.local.item_store.files import ShardIdentity
from tandem.local.item_store.refused import StoreRefused
from tandem.platform.files.json_object import from_fields, read_object, shown
from tandem.platform.files.whole_file import sync

MANIFEST_NAME = "manifest.json"
MANIFEST_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupManifest:
    """Describes the contents of a backup, so that it can be verified."""

    manifest_version: int
    schema_version: int
    shard_number: int
    shard_count: int
    store_id: str
    """Of the store that was copied; a restore creates another."""
    sequence: int
    """The last change in the backup."""
    item_counts: Mapping[str, int]
    """By index."""
    data_bytes: int
    data_sha256: str
    created_time: str
    """ISO 8601, UTC, by the clock of the machine that made it; nothing is ordered by it."""

    @property
    def identity(self) -> ShardIdentity:
        return ShardIdentity(self.shard_number, self.shard_count)

    @classmethod
    def read(cls, backup: Path) -> Self:
        """Reads and checks a backup's manifest; raises StoreRefused if it is missing or invalid."""
        file = backup / MANIFEST_NAME
        # Reading a named pipe, for example, would never end.
        if not file.is_file():
            raise StoreRefused(f"{backup} has no {MANIFEST_NAME}: it is not a complete backup")
        try:
            values = read_object(file)
            if (version := values.get("manifest_version")) != MANIFEST_VERSION:
                raise StoreRefused(
                    f"{file} has version {shown(version)}, this program reads {MANIFEST_VERSION}: "
                    "use the release of Tandem that wrote it"
                )
            return from_fields(cls, values)
        except ValueError as error:
            raise StoreRefused(f"{file} is not a Tandem manifest: {error}") from error

    def write(self, backup: Path) -> None:
        """Writes the manifest to a folder and syncs it."""
        (backup / MANIFEST_NAME).write_text(json.dumps(asdict(self), indent=2) + "\n")
        sync(backup / MANIFEST_NAME)
