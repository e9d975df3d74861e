"""Checks a store's files, as a program, because LMDB may kill the process that reads them.

LMDB has no checksums: a zeroed page aborts the process that reads it, a truncated file kills it by
SIGBUS. So `verdict.py` runs this module in a child process:

    python -m tandem.local.item_store.check PATH DEPTH MEMORY_BYTES

It writes JSON objects to stdout, one per line: {"done": ..., "total": ...} as progress, and the
fields of `Verdict` or a "refusal" at the end.
"""

import errno
import importlib
import json
import os
import resource
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

import lmdb
import lmdb.verify

from tandem.errors import ItemCorrupt, TandemError
from tandem.local.item_store.change_log import Change, ChangeLog, cursor_change, read_change
from tandem.local.item_store.checksum import ChecksumMismatch, unseal
from tandem.local.item_store.environment import DATA_NAME
from tandem.local.item_store.files import StoreFiles
from tandem.local.item_store.refused import StoreDamaged, StoreRefused
from tandem.local.item_store.writer_lock import WriterLock

Show = Callable[[int, int], None]

_SHOWN_COUNT = 100
_BATCH_COUNT = 1000


class CheckDepth(StrEnum):
    """Says how much to check; each depth includes the ones before."""

    WALK = "walk"
    """Every page on the way to a key can be read, and the store's metadata is sound."""
    PAGES = "pages"
    """LMDB's pages agree with one another and with its free list; is WALK while a process
    writes."""
    VALUES = "values"
    """Every value matches its checksum, and the items match the change log."""


@dataclass(slots=True)
class Verdict:
    """Reports what a check found."""

    path: Path
    damage: list[str] = field(default_factory=list)
    """Faults that forbid opening the store."""
    corrupt_items: list[str] = field(default_factory=list)
    """Faults of single items, at most a hundred; the other items are usable."""
    corrupt_item_count: int = 0
    item_count: int = 0
    unnamed_content_count: int = 0
    """Contents that no item has any more; they only take room."""
    sequence: int = 0
    has_writer: bool = False
    """A process was writing, so LMDB's free list was not checked."""

    @property
    def is_sound(self) -> bool:
        """Returns whether nothing was found."""
        return not self.damage and not self.corrupt_item_count

    def add_corrupt_item(self, why: str) -> None:
        """Adds an item that cannot be read, or does not match the log."""
        self.corrupt_item_count += 1
        if self.corrupt_item_count <= _SHOWN_COUNT:
            self.corrupt_items.append(why)


def check_store(path: Path, depth: CheckDepth, show: Show) -> Verdict:
    """Returns what is wrong with a store or backup; damage may kill the process instead.

    Raises StoreRefused where it cannot be checked, though it may be sound.
    """
    verdict = Verdict(path)
    is_backup = not (path / "lock.mdb").exists()
    with ExitStack() as stack:
        if not is_backup and depth is not CheckDepth.WALK:
            try:
                stack.callback(WriterLock(path).release)
            except StoreRefused:
                verdict.has_writer = True
            except OSError as error:
                raise StoreRefused(f"{path} cannot be checked: {error}") from error
        if depth is not CheckDepth.WALK and not verdict.has_writer:
            verdict.damage += _page_faults(path)
        if verdict.damage:
            return verdict
        try:
            # Maps no more than the file has.
            files = StoreFiles(
                path,
                None,
                readonly=True,
                map_bytes=(path / DATA_NAME).stat().st_size,
                allow_any_file_system=True,
                is_backup=is_backup,
            )
            stack.enter_context(closing(files))
            files.env.walk_pages()
            _check_keys(files, verdict)
            if depth is CheckDepth.VALUES:
                _check_values(files, verdict, show)
        except (MemoryError, StoreDamaged, TandemError, lmdb.Error, UnicodeDecodeError) as error:
            if _is_shortage(error):
                raise StoreRefused(
                    f"{path} cannot be checked within the memory limit: {error}"
                ) from error
            verdict.damage.append(str(error))
    return verdict


def _is_shortage(error: Exception) -> bool:
    """Returns whether the process is short of memory; LMDB reports that only in words."""
    words = (os.strerror(errno.ENOMEM), os.strerror(errno.EAGAIN))
    return isinstance(error, MemoryError | lmdb.MemoryError) or str(error).endswith(words)


def _page_faults(path: Path) -> list[str]:
    try:
        faults: list[str] = lmdb.verify.verify(str(path))  # type: ignore[no-untyped-call]
    except lmdb.verify.VerifyError as error:
        return [str(error)]
    return faults[:_SHOWN_COUNT]


def _check_keys(files: StoreFiles, verdict: Verdict) -> None:
    """Visits all keys, which reads every page except those of large values."""
    with files.env.read() as txn:
        for key in list(files.meta_keys(txn, "")):
            files.get_meta(txn, key)
        verdict.sequence = ChangeLog(files).sequence(txn)
        verdict.item_count = txn.stat(files.items)["entries"]
        for name in ("items", "log", *(("contents",) if files.contents else ())):
            database = getattr(files, name)
            counted = lost_count = 0
            with txn.cursor(database) as lookup:
                for found_key in txn.cursor(database).iternext(values=False):
                    counted += 1
                    # A damaged key of a branch page sends look-ups to the wrong leaf.
                    lost_count += not lookup.set_key(found_key)
            if counted != (stated := txn.stat(database)["entries"]):
                verdict.damage.append(f"{name} has {counted:,} keys, but counts {stated:,}")
            if lost_count:
                verdict.damage.append(
                    f"{name} has {lost_count:,} keys that a look-up does not find"
                )
        with txn.cursor(files.log) as cursor:
            last = int.from_bytes(cursor.key()) if cursor.last() else 0
            first = int.from_bytes(cursor.key()) if cursor.first() else 1
        if last != verdict.sequence:
            verdict.damage.append(
                f"the change log ends at {last:,}, but the store is at {verdict.sequence:,}"
            )
        if (kept := txn.stat(files.log)["entries"]) != last - first + 1:
            verdict.damage.append(f"the change log has {kept:,} changes from {first:,} to {last:,}")


def _check_values(files: StoreFiles, verdict: Verdict, show: Show) -> None:
    # One transaction for both passes, or a write between them would look like a fault. It keeps
    # freed pages from being reused, which is acceptable in a process that ends.
    from tandem.local.item_store.item_contents import ItemContents

    with files.env.read() as txn:
        total = verdict.item_count + txn.stat(files.log)["entries"]
        index_ids = {key.removeprefix("index/") for key in files.meta_keys(txn, "index/")}
        for done, (key, value) in enumerate(txn.cursor(files.items)):
            _check_item(files, txn, bytes(key), value, index_ids, verdict)
            if done % _BATCH_COUNT == 0:
                show(done, total)
        _check_changes(files, txn, verdict, lambda done: show(verdict.item_count + done, total))
        _check_requests(files, txn, verdict)
        if files.contents:
            contents = ItemContents(files)
            unnamed = (not contents.records_naming(txn, key) for key in contents.keys(txn))
            verdict.unnamed_content_count = sum(unnamed)
        show(total, total)


def _check_item(
    files: StoreFiles,
    txn: lmdb.Transaction,
    key: bytes,
    value: bytes | memoryview,
    index_ids: set[str],
    verdict: Verdict,
) -> None:
    # Here, because records need numpy, whose import takes a third of a check of keys alone.
    from tandem.local.item_store.item_contents import StoredRecord

    index_id, _, item_id = key.decode(errors="replace").partition("\0")
    try:
        record = StoredRecord(files, txn, key, value).view_whole()
        record.attributes()
        logged = read_change(txn, files.log, record.sequence)
    except (ItemCorrupt, ValueError) as error:
        verdict.add_corrupt_item(f"{_shown(key)}: {error}")
        return
    if index_id not in index_ids:
        verdict.add_corrupt_item(f"{_shown(key)}: there is no such index")
    if logged not in (None, Change(record.sequence, index_id, item_id, "upsert")):
        verdict.add_corrupt_item(f"{_shown(key)}: change {record.sequence} is of another item")


def _check_changes(
    files: StoreFiles, txn: lmdb.Transaction, verdict: Verdict, show: Callable[[int], None]
) -> None:
    """Compares the items with the log, newest change first."""
    from tandem.local.item_store.item_record import item_key

    absent: set[bytes] = set()
    with txn.cursor(files.log) as cursor:
        found = cursor.last()
        for done in range(txn.stat(files.log)["entries"]):
            if not found:  # _check_keys has reported that some are missing
                return
            change = cursor_change(cursor)
            key = item_key(change.index_id, change.item_id)
            value = txn.get(key, db=files.items)
            if value is not None:
                _check_newer(key, value, change, verdict)
            elif key not in absent:
                absent.add(key)
                if change.operation == "upsert":
                    verdict.add_corrupt_item(
                        f"{_shown(key)}: change {change.sequence} stored it, but it is missing"
                    )
            if done % _BATCH_COUNT == 0:
                show(done)
            found = cursor.prev()


def _check_newer(key: bytes, value: bytes | memoryview, change: Change, verdict: Verdict) -> None:
    from tandem.local.item_store.item_record import RecordView

    try:
        sequence = RecordView(change.item_id, key, value).sequence
    except ItemCorrupt:  # reported by _check_item
        return
    if sequence < change.sequence or (sequence == change.sequence and change.operation == "delete"):
        verdict.add_corrupt_item(
            f"{_shown(key)}: it is of change {sequence}, but change {change.sequence} "
            f"was its {change.operation}"
        )


def _check_requests(files: StoreFiles, txn: lmdb.Transaction, verdict: Verdict) -> None:
    """Checks the answers kept for repeated requests."""
    request_ids: set[bytes] = set()
    try:
        for key, value in txn.cursor(files.requests):
            unseal(bytes(key), value)
            request_ids.add(bytes(key))
        for key, value in txn.cursor(files.request_order):
            request_ids.remove(bytes(unseal(bytes(key), value)))
    except (ChecksumMismatch, KeyError) as error:
        verdict.damage.append(f"an answer kept for repeated requests is damaged: {error}")
        return
    if request_ids:
        verdict.damage.append(f"{len(request_ids)} answers to requests would never be forgotten")


def _shown(key: bytes) -> str:
    return ascii(key.decode(errors="replace").replace("\0", "/"))


def _main(path: str, depth: str, memory_bytes: str) -> None:
    if depth == CheckDepth.VALUES:
        # Before the limit, or a lack of memory for numpy would look like damage.
        importlib.import_module("tandem.local.item_store.item_contents")
    # The map counts as address space, though not as memory, and a reader may remap it at twice the
    # size while a process writes.
    limit = int(memory_bytes) + 3 * (Path(path) / DATA_NAME).stat().st_size
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def show(done: int, total: int) -> None:
        print(json.dumps({"done": done, "total": total}), flush=True)

    try:
        answer = asdict(check_store(Path(path), CheckDepth(depth), show))
    except StoreRefused as error:
        answer = {"refusal": str(error)}
    print(json.dumps(answer, default=str), flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
