"""Reads and writes the manifests of backups."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from tandem.local.item_store.files import SCHEMA_VERSION, ShardIdentity
from tandem.local.item_store.refused import StoreRefused
from tandem.platform.files.json_object import from_fields, read_object, shown
from tandem.platform.files.whole_file import sync

MANIFEST_NAME = "manifest.json"
MANIFEST_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreState:
    """Describes the state of a store that was backed up."""

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
    created_time: str
    """ISO 8601, UTC, by the clock of the machine that made it; nothing is ordered by it."""

    @property
    def identity(self) -> ShardIdentity:
        return ShardIdentity(self.shard_number, self.shard_count)

    @classmethod
    def of(cls, values: Mapping[str, object], name: object) -> Self:
        """Returns the manifest of that name; raises StoreRefused if it is invalid or newer."""
        try:
            if (version := values.get("manifest_version")) != MANIFEST_VERSION:
                raise StoreRefused(
                    f"{name} has version {shown(version)}, this program reads {MANIFEST_VERSION}: "
                    "use the release of Tandem that wrote it"
                )
            manifest = from_fields(cls, values)
        except ValueError as error:
            raise StoreRefused(f"{name} is not a Tandem manifest: {error}") from error
        if manifest.schema_version > SCHEMA_VERSION:
            raise StoreRefused(
                f"{name} has schema version {manifest.schema_version}, this program reads "
                f"{SCHEMA_VERSION}: use the release of Tandem that wrote it"
            )
        return manifest

    def text(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupManifest(StoreState):
    """Describes the contents of a backup in a folder, so that it can be verified."""

    data_bytes: int
    data_sha256: str

    @classmethod
    def read(cls, backup: Path) -> Self:
        """Reads and checks a backup's manifest; raises StoreRefused if it is missing or invalid."""
        file = backup / MANIFEST_NAME
        # Reading a named pipe, for example, would never end.
        if not file.is_file():
            raise StoreRefused(f"{backup} has no {MANIFEST_NAME}: it is not a complete backup")
        try:
            return cls.of(read_object(file), file)
        except ValueError as error:
            raise StoreRefused(f"{file} is not a Tandem manifest: {error}") from error

    def write(self, backup: Path) -> None:
        """Writes the manifest to a folder and syncs it."""
        (backup / MANIFEST_NAME).write_text(self.text())
        sync(backup / MANIFEST_NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Names one object of a backup."""

    name: str
    """The number of the backup that it came with, and the SHA-256 of its bytes."""
    byte_count: int

    @property
    def sha256(self) -> str:
        return self.name.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectManifest(StoreState):
    """Describes a backup in an object store: a copy in parts, and what changed since."""

    data: tuple[Part, ...]
    """The parts of `data.mdb`, in order."""
    changes: tuple[Part, ...]
    """Pieces of change sets, in the order to apply them."""

    @property
    def parts(self) -> tuple[Part, ...]:
        return (*self.data, *self.changes)

    @property
    def data_bytes(self) -> int:
        """Returns the bytes of all parts."""
        return sum(part.byte_count for part in self.parts)

    @property
    def changed_bytes(self) -> int:
        return sum(part.byte_count for part in self.changes)
