"""`tandem sync`: makes an index equal to a source."""

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

import typer

from tandem.cli.ingest.job_record import Row, Status
from tandem.cli.ingest.sent_items import SentItems
from tandem.cli.ingest.source_job import DuplicatePolicy, SourceJob, SourceOptions
from tandem.cli.ingest.sync_plan import Plan, planned
from tandem.cli.options import with_options
from tandem.cli.terminal.console import errors, one_line, out
from tandem.cli.terminal.json_answer import event, with_json
from tandem.client import NewContent
from tandem.contract.limits import MAX_ITEM_ID_COUNT
from tandem.corpus.left_out import FileFault, ReaderFault
from tandem.corpus.readable_records import OnError
from tandem.corpus.readers.image_sources import ImageFile
from tandem.corpus.records import Record

_FEW_COUNT: Final = 10
_SHOWN_COUNT: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncOptions(SourceOptions):
    """The options of the command."""

    on_error: Annotated[
        OnError, "what to do with an unreadable image or caption: stop, or skip and count it"
    ] = OnError.SKIP
    dry_run: Annotated[bool, "show what would be done, and do nothing"] = False
    max_removed_share: Annotated[
        float,
        typer.Option(
            help="share of the stored items that may be removed, if it is more than ten items",
            min=0.0,
            max=1.0,
        ),
    ] = 0.3
    others_removed: Annotated[bool, "remove items too that this source never stored"] = False
    checksum: Annotated[bool, "read each file, also one of the same size and time as before"] = (
        False
    )


@with_json
@with_options
def sync(asked: SyncOptions) -> None:
    """Make an index equal to a source: add, update, rename, remove.

    A file that has the bytes of another one, or a new name, is not encoded.
    """
    with _Sync(asked) as job:
        job.until_done(job.make_equal)


class _Sync(SourceJob):
    asked: SyncOptions

    def make_equal(self) -> None:
        """Plans and does it; raises ValueError for a plan that removes too much."""
        look = SentItems(self.job, self._form, self._peek, reads_all=self.asked.checksum)
        wanted: dict[str, Row] = {}
        gone: set[str] = set()
        for record, own in look.differing(self.records()):
            wanted |= {row.item_id: row for row, _ in own}
            gone |= self.job.rows(record.record_id).keys()
        known = list(self.job.every())
        gone |= {row.item_id for row in known if self._is_gone(row, look.seen)}
        gone -= wanted.keys()
        others = self.other_ids - wanted.keys() - {row.item_id for row in known}
        if self.asked.others_removed:
            gone, others = gone | others, set()
        if gone and self.skipped.file_counts[FileFault.UNLISTED]:
            errors.print("nothing is removed, because not every folder can be listed")
            gone.clear()
        is_kept = self.asked.duplicates is DuplicatePolicy.KEEP
        plan = planned(self.job, wanted.values(), gone, keeps_both=is_kept)
        self._show(plan, look.unchanged_count, others)
        self._check(plan)
        if not self.asked.dry_run:
            self._do(plan)

    def _is_gone(self, row: Row, seen: Collection[str]) -> bool:
        # What the reader refused is no record, but may well be there; of pictures, the file tells.
        was_refused = any(self.skipped.counts[fault] for fault in (*ReaderFault, FileFault.DAMAGED))
        is_there = not self._source.startswith("folder:") or os.path.lexists(
            row.file.split(" ", 3)[-1]
        )
        return row.record_id not in seen and not (was_refused and is_there)

    def _show(self, plan: Plan, unchanged_count: int, others: Collection[str]) -> None:
        known = self.stored_ids.intersection(row.item_id for row in plan.encoded)
        copies = [(old.item_id, row.item_id) for group in plan.copies for row, old in group]
        operations: dict[str, Sequence[str]] = {
            "added": [row.item_id for row in plan.encoded if row.item_id not in known],
            "updated": sorted(known - self.other_ids),
            "updated, of other sources": sorted(known & self.other_ids),
            "renamed": [f"{old} → {new}" for old, new in copies],
            "changed": [
                new.item_id for new, old in plan.changed if new.attributes != old.attributes
            ],
            "removed": plan.lost,
            "of other sources": sorted(others),
        }
        for what, names in operations.items():
            if names:
                first = ", ".join(map(one_line, names[:_SHOWN_COUNT]))
                out.print(f"{len(names):,} {what}: {first}{', …' * (len(names) > _SHOWN_COUNT)}")
        same = [new for new, old in plan.changed if new.attributes == old.attributes]
        unchanged_count += sum(row.item_id == row.record_id for row in same)
        out.print(f"{unchanged_count:,} {self.unit} unchanged")
        event("plan", {"unchanged_count": unchanged_count, **operations})

    def _check(self, plan: Plan) -> None:
        count, known_count = len(plan.lost), len(self.stored_ids - self.other_ids)
        if count > _FEW_COUNT and count > self.asked.max_removed_share * known_count:
            raise ValueError(
                f"{count:,} of {known_count:,} stored items would be removed, because "
                f"{self.asked.corpus} no longer has them; nothing was changed; allow it by "
                "--max-removed-share 1"
            )

    def _do(self, plan: Plan) -> None:
        has_failed = False
        for group in plan.copies:
            self.job.write(row for row, _ in group)
            has_failed |= self.change(group, is_copy=True)
        has_failed |= self.change(plan.changed)
        # So that they are read again, if only --checksum tells that they changed.
        for row in plan.encoded:
            old = self.job.row(row.item_id)
            if old and old.status is Status.DUPLICATE:
                self.job.write([replace(old, state="")])
            elif old or row.item_id != row.record_id:  # A new picture may be a duplicate.
                self.job.write([row])
        gone = [row for row in map(self.job.row, plan.removed) if row]
        # So that nothing is a duplicate of what goes.
        self.job.answer((Status.SENT, "", row.item_id) for row in gone)
        if self.job.free_duplicates() or plan.encoded or has_failed:
            self.send()
        for start in range(0, len(plan.removed), MAX_ITEM_ID_COUNT):
            ids = plan.removed[start : start + MAX_ITEM_ID_COUNT]
            self.note_write(self.client.remove(ids, index_id=self.index_id).consistency_token)
            self.job.forget(ids)
        if self.asked.duplicates is DuplicatePolicy.LINK and (found := self.duplicates()):
            found.link({row.why for row in gone if row.status is Status.DUPLICATE})

    def _peek(self, records: Iterable[Record]) -> Iterator[tuple[Record, NewContent | None]]:
        """Reads what may be the same as a stored item, and leaves the others without a content."""
        for record in records:
            stat = record.image.stat()
            is_file = isinstance(record.image, ImageFile) and self.asked.regions is None
            if is_file and stat is not None and not self.job.has_size(stat.size_bytes):
                yield record, None
            else:
                yield from self._read([record])
