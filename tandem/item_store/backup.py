"""Backups of one shard's store: made while it serves, checked, and put in the place of a lost one.

A backup is a folder with the store's `data.mdb`, free pages left out, and a `manifest.json`.
"""

import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from tandem.contract.identifiers import check_index_id
from tandem.errors import IndexIdInvalid
from tandem.item_store.check import Show
from tandem.item_store.environment import DATA_NAME, DEFAULT_MAP_BYTES, sync_folders
from tandem.item_store.file_system import check_file_system
from tandem.item_store.files import (
    RESTORING_NAME,
    SCHEMA_VERSION,
    ShardIdentity,
    StoreFiles,
)
from tandem.item_store.refused import StoreRefused
from tandem.item_store.verdict import Depth, Verdict, verify_in_child
from tandem.item_store.writer_lock import FILE_NAME as WRITER_LOCK_NAME
from tandem.item_store.writer_lock import WriterLock
from tandem.private_files import PRIVATE_FILE, PRIVATE_FOLDER

MANIFEST_NAME = "manifest.json"
_MANIFEST_VERSION = 1
_PARTIAL_SUFFIX = ".part"
# Some hundred thousand indexes.
_MAX_MANIFEST_BYTES = 16 << 20
_MAX_TEXT_CHARACTERS = 100
_SHOWN_INDEX_COUNT = 5
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CHUNK_BYTES = 1 << 22
_SHOW_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupManifest:
    """What is in a backup, and how to know that it still is."""

    manifest_version: int
    schema_version: int
    shard_number: int
    shard_count: int
    store_id: str
    """Of the store that was copied; a restore makes up another."""
    sequence: int
    """Every change up to here is in it, and none after."""
    item_counts: Mapping[str, int]
    """By index."""
    data_bytes: int
    data_sha256: str
    created_time: str
    """By the clock of the machine that made it, ISO 8601, UTC; nothing is ordered by it."""

    @property
    def identity(self) -> ShardIdentity:
        """Which shard of how many it is of."""
        return ShardIdentity(self.shard_number, self.shard_count)

    @classmethod
    def read(cls, backup: Path) -> Self:
        """Reads a backup's manifest; raises StoreRefused where there is none of ours.

        It may be anybody's: nothing in it is taken for what it should be.
        """
        file = backup / MANIFEST_NAME
        # Of a named pipe, say, there would be no end of reading.
        if not file.is_file():
            raise StoreRefused(f"{backup} has no {MANIFEST_NAME}: it is no whole backup")
        if file.stat().st_size > _MAX_MANIFEST_BYTES:
            raise StoreRefused(
                f"{file} is not one of Tandem: it has over {_MAX_MANIFEST_BYTES:,} bytes"
            )
        try:
            values = json.loads(file.read_bytes())
        except (ValueError, RecursionError) as error:
            raise StoreRefused(f"{file} cannot be read: {error}") from error
        if not isinstance(values, dict):
            raise StoreRefused(f"{file} is not one of Tandem: it is no object")
        version = values.get("manifest_version")
        if not _is_count(version) or version != _MANIFEST_VERSION:
            raise StoreRefused(
                f"{file} has version {_shown(version)}, this program reads {_MANIFEST_VERSION}: "
                "use the release of Tandem that wrote it"
            )
        if fault := _fault(values):
            raise StoreRefused(f"{file} is not one of Tandem: {fault}")
        return cls(**values)

    def write(self, backup: Path) -> None:
        """Writes the manifest to a folder and syncs it."""
        with (backup / MANIFEST_NAME).open("w") as file:
            json.dump(asdict(self), file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())


def utc_now() -> datetime:
    """Returns the time by this machine's clock."""
    return datetime.now(UTC)


def back_up(
    store: Path,
    destination: Path,
    *,
    show: Show | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> tuple[Path, BackupManifest]:
    """Copies a store, beside its writer, into a new folder in `destination`; returns that.

    The copy is the state after exactly one transaction. It has its name only once it is whole and
    synced; one that was cut short ends in ".part" and is removed by the next. `show` is told how
    many bytes of at most how many are copied. Raises StoreRefused.
    """
    # LMDB would end this process where it cannot read a page.
    if damage := verify_in_child(store, Depth.WALK).damage:
        raise StoreRefused(f"{store} is damaged ({damage[0]}): restore it from an earlier backup")
    files = StoreFiles(store, None, readonly=True, map_bytes=DEFAULT_MAP_BYTES)
    with closing(files):
        created_time = clock()
        name = f"shard-{files.identity.shard_number}-of-{files.identity.shard_count}"
        backup = destination / f"{name}-{created_time:%Y%m%dT%H%M%SZ}"
        if backup.exists():
            raise StoreRefused(f"{backup} is there already: wait a second, or remove it")
        destination.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
        _remove_partial(destination)
        partial = backup.with_name(backup.name + _PARTIAL_SUFFIX)
        partial.mkdir(PRIVATE_FOLDER)
        lock = WriterLock(partial)
        try:
            _copy(files, partial, show)
            manifest = _describe(partial, created_time)
            manifest.write(partial)
            (partial / WRITER_LOCK_NAME).unlink()
            for file in partial.iterdir():
                file.chmod(PRIVATE_FILE)
            sync_folders(partial)
            partial.rename(backup)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        finally:
            lock.release()
        sync_folders(destination)
    return backup, manifest


def is_backup(path: Path) -> bool:
    """Says whether the folder is a backup, rather than a store."""
    return (path / MANIFEST_NAME).exists()


def verify_backup(backup: Path, show: Show | None = None) -> Verdict:
    """Checks a backup against its manifest, then all that is in it; raises StoreRefused."""
    manifest = BackupManifest.read(backup)
    _check_readable_schema(backup, manifest)
    data = backup / DATA_NAME
    if not data.is_file():
        raise StoreRefused(f"{backup} has no {DATA_NAME}: it is no whole backup")
    if (size_bytes := data.stat().st_size) != manifest.data_bytes:
        raise StoreRefused(
            f"{data} is damaged: it has {size_bytes:,} bytes, the manifest says "
            f"{manifest.data_bytes:,}: use another backup"
        )
    if (sha256 := _synced_sha256(data)) != manifest.data_sha256:
        raise StoreRefused(
            f"{data} is damaged: its SHA-256 is {sha256[:16]}…, the manifest says "
            f"{manifest.data_sha256[:16]}…: use another backup"
        )
    verdict = verify_in_child(backup, Depth.VALUES, show=show)
    if not verdict.damage and verdict.sequence != manifest.sequence:
        raise StoreRefused(
            f"{backup} stands at change {verdict.sequence:,}, its manifest says "
            f"{manifest.sequence:,}: use another backup"
        )
    if not verdict.damage:
        _check_contents(backup, manifest)
    return verdict


def restore(backup: Path, store: Path, show: Show | None = None) -> BackupManifest:
    """Makes a store out of a backup, checked first, in a folder with nothing in it.

    The store has its name at once, when it is whole: a restore that is killed leaves what is
    refused on opening and what another restore begins anew. The store gets a new store_id, for the
    numbers of its next changes were given to others before. Raises StoreRefused.
    """
    check_file_system(store)
    verdict = verify_backup(backup, show)
    if not verdict.is_sound:
        why = (*verdict.damage, *verdict.corrupt_items)[0]
        raise StoreRefused(f"{backup} is damaged ({why}): use another backup")
    manifest = BackupManifest.read(backup)
    store.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
    lock = WriterLock(store)
    try:
        _check_empty(store)
        restoring = store / RESTORING_NAME
        shutil.rmtree(restoring, ignore_errors=True)
        restoring.mkdir(PRIVATE_FOLDER)
        sync_folders(store)
        shutil.copyfile(backup / DATA_NAME, restoring / DATA_NAME)
        (restoring / DATA_NAME).chmod(PRIVATE_FILE)
        _rename_history(restoring, manifest.identity)
        sync_folders(restoring)
        (restoring / DATA_NAME).rename(store / DATA_NAME)
        sync_folders(store)
        shutil.rmtree(restoring)
    finally:
        lock.release()
    return manifest


def _remove_partial(destination: Path) -> None:
    """Removes what backups that were killed have left; not one that is under way."""
    for partial in destination.glob(f"shard-*{_PARTIAL_SUFFIX}"):
        try:
            WriterLock(partial).release()
        except StoreRefused:
            continue
        shutil.rmtree(partial)


def _copy(files: StoreFiles, partial: Path, show: Show | None) -> None:
    with ThreadPoolExecutor(1) as threads:
        copying = threads.submit(files.env.copy_compacted, partial)
        while wait((copying,), _SHOW_SECONDS).not_done:
            if show is not None and (partial / DATA_NAME).exists():
                show((partial / DATA_NAME).stat().st_size, files.env.used_bytes())
        copying.result()


def _describe(partial: Path, created_time: datetime) -> BackupManifest:
    data = partial / DATA_NAME
    sha256, data_bytes = _synced_sha256(data), data.stat().st_size
    files = StoreFiles(partial, None, readonly=True, map_bytes=data_bytes, is_backup=True)
    with closing(files), files.env.read() as txn:
        return BackupManifest(
            manifest_version=_MANIFEST_VERSION,
            schema_version=files.schema_version,
            shard_number=files.identity.shard_number,
            shard_count=files.identity.shard_count,
            store_id=files.store_id,
            sequence=int(files.get_meta(txn, "sequence") or 0),
            item_counts=_item_counts(files),
            data_bytes=data_bytes,
            data_sha256=sha256,
            created_time=created_time.isoformat(timespec="seconds"),
        )


def _item_counts(files: StoreFiles) -> dict[str, int]:
    """Returns how many items each index has."""
    with files.env.read() as txn:
        counts = {key.removeprefix("index/"): 0 for key in files.meta_keys(txn, "index/")}
        for key in txn.cursor(files.items).iternext(values=False):
            index_id = bytes(key).split(b"\0", 1)[0].decode()
            counts[index_id] = counts.get(index_id, 0) + 1
        return counts


def _synced_sha256(file: Path) -> str:
    with file.open("rb") as data:
        os.fsync(data.fileno())
        digest = hashlib.sha256()
        while chunk := data.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _check_contents(backup: Path, manifest: BackupManifest) -> None:
    """Raises StoreRefused where the store in a backup is another than the manifest says."""
    files = StoreFiles(
        backup,
        manifest.identity,
        readonly=True,
        map_bytes=manifest.data_bytes,
        allow_any_file_system=True,
        is_backup=True,
    )
    with closing(files):
        try:
            found = _item_counts(files)
        except ValueError as error:
            raise StoreRefused(f"{backup} has a key that is none of ours: {error}") from error
        if found != dict(manifest.item_counts):
            raise StoreRefused(
                f"{backup} has {_counted(found)}, its manifest says "
                f"{_counted(manifest.item_counts)}: use another backup"
            )


def _check_readable_schema(backup: Path, manifest: BackupManifest) -> None:
    if manifest.schema_version > SCHEMA_VERSION:
        raise StoreRefused(
            f"{backup} has schema version {manifest.schema_version}, this program reads "
            f"{SCHEMA_VERSION}: use the release of Tandem that wrote it"
        )


def _check_empty(store: Path) -> None:
    # lost+found stands in the root of every ext4 volume.
    allowed = {"lost+found", WRITER_LOCK_NAME, RESTORING_NAME}
    if others := sorted(path.name for path in store.iterdir() if path.name not in allowed):
        raise StoreRefused(
            f"{store} is not empty ({', '.join(others[:3])}): move what is there away, or restore "
            "into another folder"
        )


def _rename_history(folder: Path, identity: ShardIdentity) -> None:
    """Gives the store in the folder a new store_id and syncs it."""
    size_bytes = (folder / DATA_NAME).stat().st_size
    # Room for one more transaction beyond the pages there are.
    files = StoreFiles(folder, identity, readonly=False, map_bytes=size_bytes + (1 << 20))
    with closing(files), files.env.write() as txn:
        files.put_meta(txn, "store_id", uuid.uuid4().hex)
    _synced_sha256(folder / DATA_NAME)


def _fault(values: Mapping[str, object]) -> str | None:
    """Says what in a manifest is not what it should be; None where all of it is."""
    names = {field.name for field in fields(BackupManifest)}
    if missing := sorted(names - values.keys()):
        return f"it has no {missing[0]}"
    if unknown := sorted(values.keys() - names):
        return f"it has {_shown(unknown[0])}, which none has"
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
            return f"item_counts has {_shown(index_id)}, which is no index"
        if not _is_count(count):
            return f"item_counts has {_shown(count)} for {index_id}, not a whole number from 0 on"
    return None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _counted(counts: Mapping[str, int]) -> str:
    told = [f"{count:,} items in {index_id}" for index_id, count in sorted(counts.items())]
    return ", ".join(told[:_SHOWN_INDEX_COUNT]) or "no items"


def _shown(value: object) -> str:
    """Returns a value of anybody's on a line, cut where it is long."""
    try:
        text = json.dumps(value)
    except (ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= _MAX_TEXT_CHARACTERS else f"{text[:_MAX_TEXT_CHARACTERS]}…"
