"""Whether a store's files are sound; run as a program, for LMDB may end the process that finds out.

LMDB has no checksums: a zeroed page aborts the process that reads it, a truncated file kills it by
SIGBUS. So `verdict.py` runs this module in a process of its own:

    python -m tandem.item_store.check PATH DEPTH MEMORY_BYTES

It writes JSON objects to stdout, one a line: {"done": ..., "total": ...} on the way, and in the
end what `Findings` has.
"""

import errno
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

from tandem.errors import ItemCorrupt, ServiceUnavailable, TandemError
from tandem.item_store.change_log import Change, cursor_change, read_change
from tandem.item_store.checksum import ChecksumMismatch, unseal
from tandem.item_store.environment import DATA_NAME
from tandem.item_store.files import StoreFiles
from tandem.item_store.item_record import RecordView, item_key
from tandem.item_store.refused import StoreDamaged, StoreRefused
from tandem.item_store.writer_lock import WriterLock

Show = Callable[[int, int], None]

_SHOWN_COUNT = 100
_BATCH_COUNT = 1000


class Depth(StrEnum):
    """How much is checked, each more than the one before."""

    WALK = "walk"
    """Every page by which a key is found can be read, and the store's own notes are sound."""
    PAGES = "pages"
    """LMDB's pages agree with one another and with its list of free ones; needs that no process
    writes, and is WALK where one does."""
    VALUES = "values"
    """Every value has its checksum, and the items are those that the change log leads to."""


@dataclass(slots=True)
class Findings:
    """What was found; `damage` names faults for which the store must not be opened."""

    damage: list[str] = field(default_factory=list)
    refusal: str = ""
    """Why the store cannot be checked, though it may be sound."""
    corrupt_items: list[str] = field(default_factory=list)
    corrupt_item_count: int = 0
    has_writer: bool = False
    item_count: int = 0
    sequence: int = 0

    def add_corrupt_item(self, why: str) -> None:
        """Notes an item that cannot be read, or is not what the log says."""
        self.corrupt_item_count += 1
        if self.corrupt_item_count <= _SHOWN_COUNT:
            self.corrupt_items.append(why)


def check_store(path: Path, depth: Depth, show: Show) -> Findings:
    """Returns what is wrong with the store or backup at the path; may end the process instead."""
    findings = Findings()
    is_backup = not (path / "lock.mdb").exists()
    with ExitStack() as stack:
        if not is_backup and depth is not Depth.WALK:
            try:
                stack.callback(WriterLock(path).release)
            except StoreRefused:
                findings.has_writer = True
            except OSError as error:
                findings.refusal = f"{path} cannot be checked: {error}"
                return findings
        if depth is not Depth.WALK and not findings.has_writer:
            findings.damage += _page_faults(path)
        if findings.damage:
            return findings
        try:
            # No more is mapped than there is: what lies beyond is not there either.
            files = StoreFiles(
                path,
                None,
                readonly=True,
                map_bytes=(path / DATA_NAME).stat().st_size,
                allow_any_file_system=True,
                is_backup=is_backup,
            )
            stack.enter_context(closing(files))
            used_bytes, file_bytes = files.env.used_bytes(), (path / DATA_NAME).stat().st_size
            if used_bytes > file_bytes:
                findings.damage.append(
                    f"{DATA_NAME} has {file_bytes:,} bytes, {used_bytes:,} are in use"
                )
                return findings
            files.env.walk_pages()
            _check_keys(files, findings)
            if depth is Depth.VALUES:
                _check_values(files, findings, show)
        except ServiceUnavailable:
            pass  # made by an earlier release that was ended before it was done: empty
        except (MemoryError, StoreDamaged, TandemError, lmdb.Error, UnicodeDecodeError) as error:
            if _is_shortage(error):
                findings.refusal = (
                    f"{path} cannot be checked in the memory that is allowed: {error}"
                )
            else:
                findings.damage.append(str(error))
        except StoreRefused as error:
            findings.refusal = str(error)
    return findings


def _is_shortage(error: Exception) -> bool:
    """Says whether the process, and not the store, is at fault; LMDB tells it by words alone."""
    words = (os.strerror(errno.ENOMEM), os.strerror(errno.EAGAIN))
    return isinstance(error, MemoryError | lmdb.MemoryError) or str(error).endswith(words)


def _page_faults(path: Path) -> list[str]:
    try:
        faults: list[str] = lmdb.verify.verify(str(path))  # type: ignore[no-untyped-call]
    except lmdb.verify.VerifyError as error:
        return [str(error)]
    return faults[:_SHOWN_COUNT]


def _check_keys(files: StoreFiles, findings: Findings) -> None:
    """Walks through all keys, which reads every page but those of large values."""
    with files.env.read() as txn:
        for key in list(files.meta_keys(txn, "")):
            files.get_meta(txn, key)
        findings.sequence = int(files.get_meta(txn, "sequence") or 0)
        findings.item_count = txn.stat(files.items)["entries"]
        for name, database in (("items", files.items), ("log", files.log)):
            counted = lost_count = 0
            with txn.cursor(database) as lookup:
                for found_key in txn.cursor(database).iternext(values=False):
                    counted += 1
                    # A damaged key of a branch page sends look-ups to the wrong leaf.
                    lost_count += not lookup.set_key(found_key)
            if counted != (stated := txn.stat(database)["entries"]):
                findings.damage.append(f"{name} has {counted:,} keys and says {stated:,}")
            if lost_count:
                findings.damage.append(f"{name} has {lost_count:,} keys that are not found")
        with txn.cursor(files.log) as cursor:
            last = int.from_bytes(cursor.key()) if cursor.last() else 0
            first = int.from_bytes(cursor.key()) if cursor.first() else 1
        if last != findings.sequence:
            findings.damage.append(
                f"the change log ends at {last:,}, the store stands at {findings.sequence:,}"
            )
        if (kept := txn.stat(files.log)["entries"]) != last - first + 1:
            findings.damage.append(
                f"the change log has {kept:,} changes from {first:,} to {last:,}"
            )


def _check_values(files: StoreFiles, findings: Findings, show: Show) -> None:
    # One state of the store throughout, or a write between the two passes would look like a fault.
    # That keeps pages from being used again, so it is for a process that ends.
    with files.env.read() as txn:
        total = findings.item_count + txn.stat(files.log)["entries"]
        index_ids = {key.removeprefix("index/") for key in files.meta_keys(txn, "index/")}
        for done, (key, value) in enumerate(txn.cursor(files.items)):
            _check_item(files, txn, bytes(key), value, index_ids, findings)
            if done % _BATCH_COUNT == 0:
                show(done, total)
        _check_changes(files, txn, findings, lambda done: show(findings.item_count + done, total))
        _check_requests(files, txn, findings)
        show(total, total)


def _check_item(
    files: StoreFiles,
    txn: lmdb.Transaction,
    key: bytes,
    value: bytes | memoryview,
    index_ids: set[str],
    findings: Findings,
) -> None:
    index_id, _, item_id = key.decode(errors="replace").partition("\0")
    try:
        record = RecordView(item_id, key, value)
        record.attributes()
        logged = read_change(txn, files.log, record.sequence)
    except (ItemCorrupt, ValueError) as error:
        findings.add_corrupt_item(f"{_shown(key)}: {error}")
        return
    if index_id not in index_ids:
        findings.add_corrupt_item(f"{_shown(key)}: there is no such index")
    if logged not in (None, Change(record.sequence, "upsert", index_id, item_id)):
        findings.add_corrupt_item(f"{_shown(key)}: change {record.sequence} is of another item")


def _check_changes(
    files: StoreFiles, txn: lmdb.Transaction, findings: Findings, show: Callable[[int], None]
) -> None:
    """Holds the items against the log, newest change first, which says what must be there."""
    absent: set[bytes] = set()
    with txn.cursor(files.log) as cursor:
        found = cursor.last()
        for done in range(txn.stat(files.log)["entries"]):
            if not found:  # _check_keys has told that some are not there
                return
            change = cursor_change(cursor)
            key = item_key(change.index_id, change.item_id)
            value = txn.get(key, db=files.items)
            if value is not None:
                _check_newer(key, value, change, findings)
            elif key not in absent:
                absent.add(key)
                if change.operation == "upsert":
                    findings.add_corrupt_item(
                        f"{_shown(key)}: change {change.sequence} stored it, and it is not there"
                    )
            if done % _BATCH_COUNT == 0:
                show(done)
            found = cursor.prev()


def _check_newer(key: bytes, value: bytes | memoryview, change: Change, findings: Findings) -> None:
    try:
        sequence = RecordView(change.item_id, key, value).sequence
    except ItemCorrupt:  # told by _check_item
        return
    if sequence < change.sequence or (sequence == change.sequence and change.operation == "delete"):
        findings.add_corrupt_item(
            f"{_shown(key)}: it is of change {sequence}, and change {change.sequence} "
            f"was its {change.operation}"
        )


def _check_requests(files: StoreFiles, txn: lmdb.Transaction, findings: Findings) -> None:
    """Checks the answers that are kept for repeated requests."""
    if files.schema_version < 2:
        return
    request_ids: set[bytes] = set()
    try:
        for key, value in txn.cursor(files.requests):
            unseal(bytes(key), value)
            request_ids.add(bytes(key))
        for key, value in txn.cursor(files.request_order):
            request_ids.remove(bytes(unseal(bytes(key), value)))
    except (ChecksumMismatch, KeyError) as error:
        findings.damage.append(f"an answer kept for repeated requests is damaged: {error}")
        return
    if request_ids:
        findings.damage.append(f"{len(request_ids)} answers to requests would never be forgotten")


def _shown(key: bytes) -> str:
    return ascii(key.decode(errors="replace").replace("\0", "/"))


def _main(path: str, depth: str, memory_bytes: str) -> None:
    # The map counts as address space, though not as memory; beside a writer it may be mapped anew,
    # twice as large.
    limit = int(memory_bytes) + 3 * (Path(path) / DATA_NAME).stat().st_size
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def show(done: int, total: int) -> None:
        print(json.dumps({"done": done, "total": total}), flush=True)

    print(json.dumps(asdict(check_store(Path(path), Depth(depth), show))), flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
