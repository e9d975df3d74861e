"""Backs up one shard's store while it serves, verifies backups and restores them.

A place is a folder, in a file system or an object store; a backup there is named by its manifest:

    PLACE/shard-0-of-2/STORE_ID/000007.json     a manifest, created last and never replaced
    PLACE/shard-0-of-2/STORE_ID/000007/SHA256   the parts that backup 7 has more than those before

The first backup is a copy in parts. A later one adds the changes since the newest, until these are
half as large as the copy, or the change log no longer reaches so far back.

index_svc runs this module as a program, because a transaction as long as an upload would keep its
own environment from being opened again after a fault of the disk:

    python -m tandem.local.item_store.backup STORE PLACE
"""

import hashlib
import json
import os
import re
import sys
import tempfile
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lmdb

from tandem.installation import PackageMissing
from tandem.local.item_store.backup_manifest import BackupManifest, Part
from tandem.local.item_store.change_log import ChangeLog
from tandem.local.item_store.change_set import apply_changes, pack_changes
from tandem.local.item_store.check import CheckDepth, Show
from tandem.local.item_store.environment import DATA_NAME, DEFAULT_MAP_BYTES
from tandem.local.item_store.files import StoreFiles
from tandem.local.item_store.item_contents import ItemContents
from tandem.local.item_store.refused import StoreRefused
from tandem.local.item_store.restored_store import restoring
from tandem.local.item_store.verdict import Verdict, verify_in_child
from tandem.platform.files.object_store import ObjectFolder, object_folder
from tandem.platform.files.private_files import keep_files_private

PART_BYTES = 8 << 20
"""How much of a copy or of changes becomes one object, which has half a minute for its way."""
# Each upload in progress has its part in memory twice: as sent, and as read back.
_UPLOAD_COUNT = 3
_SUFFIX = ".json"
_MANIFEST = re.compile(r"(.*/)?\d{6,}\.json")


def back_up(
    place: ObjectFolder,
    store: Path,
    *,
    part_bytes: int = PART_BYTES,
    show: Show | None = None,
) -> tuple[str, BackupManifest]:
    """Backs up a store, even while it is written; returns its URL and manifest.

    Every part is read back and compared. An interrupted backup stays invisible, and the next one
    uses or removes its parts. Of two at a time the later is refused at its end. `show` gets the
    bytes that are there and their upper bound. Raises StoreRefused, and OSError where the object
    store fails.
    """
    with closing(_checked_files(store)) as files, files.env.read() as txn:
        state = _described(files, txn)
        folder = place.inner(f"{str(files.identity).replace(' ', '-')}/{files.store_id}")
        sizes = folder.sizes()
        newest = max(filter(_MANIFEST.fullmatch, sizes), default=f"{0:06d}{_SUFFIX}")
        number = f"{int(newest.removesuffix(_SUFFIX)) + 1:06d}"
        base = _base(folder, newest, sizes, files, txn)
        pieces = (
            _copied(files, txn, part_bytes)
            if base is None
            else pack_changes(files, txn, base.sequence, part_bytes)
        )
        parts, done_bytes = [], 0
        with closing(pieces):
            for part in _uploaded(folder, number, pieces):
                parts.append(part)
                done_bytes += part.byte_count
                if show:
                    show(done_bytes, files.env.used_bytes())
    manifest = BackupManifest(
        **state,
        data=tuple(parts) if base is None else base.data,
        changes=() if base is None else (*base.changes, *parts),
    )
    _create_manifest(folder, number + _SUFFIX, manifest)
    # Backups of this number that were interrupted have left the rest, which no manifest names.
    left = {each for each in sizes if each.startswith(f"{number}/")}
    with suppress(OSError):  # credentials may forbid it
        folder.remove(sorted(left - {part.name for part in parts}))
    return f"{folder.url}/{number}{_SUFFIX}", manifest


def backups_in(place: ObjectFolder) -> list[str]:
    """Returns the URLs of the backups below a place, of each store the oldest first."""
    return [f"{place.url}/{name}" for name in sorted(place.sizes()) if _MANIFEST.fullmatch(name)]


def verify_backup(url: str, show: Show | None = None) -> Verdict:
    """Downloads a backup into a temporary folder and checks everything; raises StoreRefused."""
    with tempfile.TemporaryDirectory() as folder:
        return _assembled(url, Path(folder), show)[1]


def restore(url: str, store: Path, show: Show | None = None) -> BackupManifest:
    """Restores a backup to a store in an empty folder, where it appears once it is checked.

    Raises StoreRefused, and OSError where the object store fails; another restore starts over.
    """
    with restoring(store) as folder:
        manifest, verdict = _assembled(url, folder, show)
        if not verdict.is_sound:
            why = (*verdict.damage, *verdict.corrupt_items)[0]
            raise StoreRefused(f"{url} is damaged ({why}): use another backup")
    return manifest


def _checked_files(store: Path) -> StoreFiles:
    """Opens a store to read it, served or not; raises StoreRefused where it is damaged."""
    # LMDB would kill this process where it cannot read a page.
    if damage := verify_in_child(store, CheckDepth.WALK).damage:
        raise StoreRefused(f"{store} is damaged ({damage[0]}): restore it from an earlier backup")
    return StoreFiles(store, None, readonly=True, map_bytes=DEFAULT_MAP_BYTES)


def _copied(
    files: StoreFiles, txn: lmdb.Transaction, piece_bytes: int
) -> Generator[bytes, None, None]:
    """Yields the store as of a transaction, without free pages, in pieces."""
    read_end, write_end = os.pipe()

    def copy() -> None:
        with os.fdopen(write_end, "wb"):
            files.env.copy_compacted(write_end, txn)

    with ThreadPoolExecutor(1) as threads, os.fdopen(read_end, "rb") as pipe:
        copying = threads.submit(copy)
        while piece := pipe.read(piece_bytes):
            yield piece
        copying.result()


def _described(files: StoreFiles, txn: lmdb.Transaction) -> dict[str, Any]:
    """Returns the fields of a manifest that say what is backed up."""
    counts = {key.removeprefix("index/"): 0 for key in files.meta_keys(txn, "index/")}
    for key in txn.cursor(files.items).iternext(values=False):
        index_id = bytes(key).split(b"\0", 1)[0].decode()
        counts[index_id] = counts.get(index_id, 0) + 1
    return {
        "schema_version": files.schema_version,
        "shard_number": files.identity.shard_number,
        "shard_count": files.identity.shard_count,
        "store_id": files.store_id,
        "sequence": ChangeLog(files).sequence(txn),
        "item_counts": counts,
        "created_time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _manifest(folder: ObjectFolder, name: str) -> BackupManifest:
    return BackupManifest.of(folder.read(name), f"{folder.url}/{name}")


def _base(
    folder: ObjectFolder,
    newest: str,
    sizes: dict[str, int],
    files: StoreFiles,
    txn: lmdb.Transaction,
) -> BackupManifest | None:
    """Returns the backup to which changes can be added; None where a copy is needed."""
    if newest not in sizes:
        return None
    base = _manifest(folder, newest)
    if (
        any(sizes.get(part.name) != part.byte_count for part in base.parts)
        or 3 * base.changed_bytes > base.data_bytes
        or not ChangeLog(files).has_since(txn, base.sequence)
    ):
        return None
    return base


def _uploaded(folder: ObjectFolder, number: str, pieces: Iterator[bytes]) -> Iterator[Part]:
    """Uploads pieces, some at a time; yields each part in order."""
    with ThreadPoolExecutor(_UPLOAD_COUNT) as threads:
        pending: deque[Future[Part]] = deque()
        for piece in pieces:
            if len(pending) == _UPLOAD_COUNT:
                yield pending.popleft().result()
            pending.append(threads.submit(_upload, folder, number, piece))
        while pending:
            yield pending.popleft().result()


def _upload(folder: ObjectFolder, number: str, piece: bytes) -> Part:
    part = Part(name=f"{number}/{hashlib.sha256(piece).hexdigest()}", byte_count=len(piece))
    with suppress(FileExistsError):  # of an interrupted backup
        folder.create(part.name, piece)
    try:
        _read_part(folder, part)
    except StoreRefused:
        with suppress(OSError):
            folder.remove([part.name])
        raise
    return part


def _read_part(folder: ObjectFolder, part: Part) -> bytes:
    data = folder.read(part.name)
    if (sha256 := hashlib.sha256(data).hexdigest()) != part.sha256:
        raise StoreRefused(
            f"{folder.url}/{part.name} is damaged: it has {len(data):,} bytes with SHA-256 "
            f"{sha256[:16]}…, and {part.byte_count:,} with {part.sha256[:16]}… were stored"
        )
    return data


def _create_manifest(folder: ObjectFolder, name: str, manifest: BackupManifest) -> None:
    data = manifest.text().encode()
    with suppress(FileExistsError):  # of a first attempt whose answer was lost, if it is the same
        folder.create(name, data)
    if folder.read(name) != data:
        raise StoreRefused(
            f"{folder.url}/{name} is another backup, of another process, or damaged: verify it"
        )


def _assembled(url: str, target: Path, show: Show | None) -> tuple[BackupManifest, Verdict]:
    """Downloads a backup, applies its changes, and checks the store in the target folder."""
    folder_url, _, name = url.rpartition("/")
    folder = object_folder(folder_url)
    manifest = _manifest(folder, name)
    with (target / DATA_NAME).open("wb") as data:
        for part in manifest.data:
            data.write(_read_part(folder, part))
            if show:
                show(data.tell(), manifest.data_bytes)
    if manifest.changes:
        # Small values of 2 kB have a page of 4 kB each.
        map_bytes = max(DEFAULT_MAP_BYTES, 4 * manifest.data_bytes)
        with closing(StoreFiles(target, None, readonly=False, map_bytes=map_bytes)) as files:
            for part in manifest.changes:
                try:
                    apply_changes(files, _read_part(folder, part))
                except lmdb.Error as error:  # a full disk, for one
                    raise OSError(f"the changes of {url} could not be applied: {error}") from error
            with files.env.write() as txn:
                ItemContents(files).remove_unnamed(txn)
    return manifest, verify_in_child(target, show=show)


def _main(store: str, place: str) -> None:
    """Prints the progress, and at last the backup or why there is none, as lines of JSON."""
    keep_files_private()

    def show(done: int, total: int) -> None:
        print(json.dumps({"uploaded_bytes": done, "upload_limit_bytes": total}), flush=True)

    try:
        url, manifest = back_up(object_folder(place, is_new=True), Path(store), show=show)
    except (StoreRefused, OSError, PackageMissing) as error:
        print(json.dumps({"refusal": str(error)}))
    else:
        backup = {"url": url, "sequence": manifest.sequence, "data_bytes": manifest.data_bytes}
        print(json.dumps({"backup": backup}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
