"""Describes a backup: the store's state, and the parts that it is put together from."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Self

from tandem.local.item_store.files import SCHEMA_VERSION, ShardIdentity
from tandem.local.item_store.refused import StoreRefused
from tandem.platform.files.json_object import from_fields, object_of, shown

MANIFEST_VERSION = 1


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
class BackupManifest:
    """Describes a store that was backed up: its state, a copy in parts, and changes since."""

    manifest_version: int = MANIFEST_VERSION
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
    data: tuple[Part, ...]
    """The parts of `data.mdb`, in order."""
    changes: tuple[Part, ...] = ()
    """Pieces of change sets, in the order to apply them."""

    @classmethod
    def of(cls, data: bytes, name: str) -> Self:
        """Returns the manifest of that name; raises StoreRefused if it is invalid or newer."""
        try:
            values = object_of(data.decode(), name)
            if (version := values.get("manifest_version")) != MANIFEST_VERSION:
                raise StoreRefused(
                    f"{name} has version {shown(version)}, this program reads {MANIFEST_VERSION}: "
                    "use the release of Tandem that wrote it"
                )
            manifest = from_fields(cls, values)
            if not manifest.data:
                raise ValueError("data has no part")
        except (ValueError, LookupError) as error:
            raise StoreRefused(f"{name} is not a Tandem manifest: {error}") from error
        if manifest.schema_version > SCHEMA_VERSION:
            raise StoreRefused(
                f"{name} has schema version {manifest.schema_version}, this program reads "
                f"{SCHEMA_VERSION}: use the release of Tandem that wrote it"
            )
        return manifest

    @property
    def identity(self) -> ShardIdentity:
        return ShardIdentity(self.shard_number, self.shard_count)

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

    def text(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"
