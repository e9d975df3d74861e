"""Reads and writes the manifest of a backup, and trusts nothing that it reads."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Self

from tandem.contract.identifiers import check_index_id
from tandem.errors import IndexIdInvalid
from tandem.item_store.files import ShardIdentity
from tandem.item_store.refused import StoreRefused

MANIFEST_NAME = "manifest.json"
MANIFEST_VERSION = 1

# Some hundred thousand indexes.
_MAX_MANIFEST_BYTES = 16 << 20
_MAX_TEXT_CHARACTERS = 100
_SHA256 = re.compile(r"[0-9a-f]{64}")


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
        if file.stat().st_size > _MAX_MANIFEST_BYTES:
            raise StoreRefused(
                f"{file} is not a Tandem manifest: it has over {_MAX_MANIFEST_BYTES:,} bytes"
            )
        try:
            values = json.loads(file.read_bytes())
        except (ValueError, RecursionError) as error:
            raise StoreRefused(f"{file} cannot be read: {error}") from error
        if not isinstance(values, dict):
            raise StoreRefused(f"{file} is not a Tandem manifest: it is not a JSON object")
        version = values.get("manifest_version")
        if not _is_count(version) or version != MANIFEST_VERSION:
            raise StoreRefused(
                f"{file} has version {_shown(version)}, this program reads {MANIFEST_VERSION}: "
                "use the release of Tandem that wrote it"
            )
        if fault := _fault(values):
            raise StoreRefused(f"{file} is not a Tandem manifest: {fault}")
        return cls(**values)

    def write(self, backup: Path) -> None:
        """Writes the manifest to a folder and syncs it."""
        with (backup / MANIFEST_NAME).open("w") as file:
            json.dump(asdict(self), file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())


def _fault(values: Mapping[str, object]) -> str | None:
    """Returns the first fault in a manifest's values, None where there is none."""
    names = {field.name for field in fields(BackupManifest)}
    if missing := sorted(names - values.keys()):
        return f"it has no {missing[0]}"
    if unknown := sorted(values.keys() - names):
        return f"it has an unknown field {_shown(unknown[0])}"
    for name in ("schema_version", "shard_number", "shard_count", "sequence", "data_bytes"):
        if not _is_count(values[name]):
            return f"{name} is {_shown(values[name])}, not a whole number from 0 on"
    for name in ("store_id", "created_time"):
        if not isinstance(values[name], str) or len(str(values[name])) > _MAX_TEXT_CHARACTERS:
            return f"{name} is {_shown(values[name])}, not a short text"
    if not isinstance(values["data_sha256"], str) or not _SHA256.fullmatch(values["data_sha256"]):
        return f"data_sha256 is {_shown(values['data_sha256'])}, not 64 hexadecimal digits"
    counts = values["item_counts"]
    if not isinstance(counts, dict):
        return f"item_counts is {_shown(counts)}, not counts by index"
    for index_id, count in counts.items():
        try:
            check_index_id(index_id)
        except IndexIdInvalid:
            return f"item_counts has {_shown(index_id)}, which is not an index id"
        if not _is_count(count):
            return f"item_counts has {_shown(count)} for {index_id}, not a whole number from 0 on"
    return None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _shown(value: object) -> str:
    """Returns an untrusted value on one line, cut where it is long."""
    try:
        text = json.dumps(value)
    except (ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= _MAX_TEXT_CHARACTERS else f"{text[:_MAX_TEXT_CHARACTERS]}…"
