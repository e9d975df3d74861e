"""Sends of a source what the record of its job lacks, and notes the outcome."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from typing import Any, Final

from tandem.cli.ingest.job_record import JobRecord, Row, Status
from tandem.cli.smaller_jpeg import sendable_picture
from tandem.cli.terminal.json_answer import event
from tandem.client import (
    ImageContent,
    IngestOutcome,
    IngestProgress,
    NewContent,
    NewItem,
    RegionContent,
    TextContent,
    TruncationPolicy,
)
from tandem.client.ingest.rounds import may_be_stored_later
from tandem.contract.content import Content
from tandem.contract.filtering.attributes import MAX_TEXT_BYTES, MAX_TEXTS_COUNT, Attributes
from tandem.corpus.readable_records import HeldPicture
from tandem.corpus.records import Record

_BATCH_ITEM_COUNT: Final = 32
# What a kill has encoded in vain, at most.
_MAX_PENDING_COUNT: Final = 2 * _BATCH_ITEM_COUNT
# A file that changes again within the time that a file system's clock tells apart looks the same.
_SETTLED_SECONDS: Final = 2.0

NewRow = tuple[Row, tuple[str, Any, Attributes]]
"""An item's row before it is sent, and the item."""
Reader = Callable[[Iterable[Record]], Iterable[tuple[Record, NewContent | None]]]
"""Reads what is sent for each record, and leaves out what cannot be read; None is not read."""


@dataclass(frozen=True, slots=True)
class ItemForm:
    """How a record becomes items."""

    captions: bool
    """Whether its captions are items too."""
    caption_attribute: str | None
    """The attribute of the image that has the captions, if one has."""
    has_regions: bool
    """Whether a detector's regions are sent in place of pictures."""
    truncation_policy: TruncationPolicy
    """What was refused by another one may be stored by this."""

    def state(self, record: Record) -> str:
        """Returns what is the same as long as the record is, of a file its path, size and times.

        Empty if only reading it tells.
        """
        stat = record.image.stat()
        if stat is None or record.captions_fault or self.has_regions:
            return ""
        if abs(time.time() - max(stat.mtime_ns, stat.ctime_ns) / 1e9) < _SETTLED_SECONDS:
            return ""
        about = sha256(repr((self, record.split, record.captions, record.attributes)).encode())
        state = " ".join(map(str, (about.hexdigest()[:32], *stat, record.image)))
        return state.encode(errors="backslashreplace").decode()  # Names of folders may be no text.

    def item_ids(self, record: Record) -> set[str]:
        """Returns the ids of what `items` yields."""
        captions = record.captions if self.captions else ()
        return {record.record_id, *(each.caption_id for each in captions)}

    def items(self, record: Record, content: NewContent | None) -> Iterator[NewRow]:
        """Yields the image and its captions, each with its row.

        All have the corpus's attributes, the split and the language, an image that of each caption.
        """
        shared: Attributes = {"split": record.split, **record.attributes}
        languages = sorted({caption.language for caption in record.captions})
        attributes: Attributes = {"language": tuple(languages), **shared}
        if self.caption_attribute is not None:
            attributes = {**attributes, self.caption_attribute: _attribute_captions(record)}
        yield with_row(record.record_id, record.record_id, content, attributes)
        for caption in record.captions if self.captions else ():
            own = {**shared, "language": caption.language}
            yield with_row(record.record_id, caption.caption_id, caption.text, own)


class SentItems:
    """The items of a source that are to be sent, and how many pictures are done.

    gRPC takes the items in a thread of its own. It gets no more than two batches ahead of their
    answers, so that a kill wastes no more work.
    """

    def __init__(
        self,
        job: JobRecord,
        form: ItemForm,
        read: Reader,
        *,
        reads_all: bool = False,
        is_duplicate: Callable[[Row, object], bool] | None = None,
    ) -> None:
        """Reads what may have changed, or everything. Duplicates are left out."""
        self._is_duplicate = is_duplicate
        self.scaled_down_count = self.unchanged_count = self.read_count = 0
        self.seen: set[str] = set()
        """Ids of the records that the source has."""
        self._job, self._form, self._read, self._reads_all = job, form, read, reads_all
        self.changed: list[tuple[Row, Row]] = []
        """Items of which only the attributes changed, and how they are stored."""
        self._states: dict[str, str] = {}
        self._same: dict[str, Row] = {}
        """Stored pictures whose files are as they were, by id."""
        self._pictures: set[str] = set()
        """Ids of those that have no answer."""
        self._changed = threading.Condition()
        self._pending_count = self._answered_count = self._done_count = 0
        self._is_over = False
        self._answers: list[tuple[Status, str, str]] = []
        self.token = ""
        """The consistency token of what was stored."""

    def of(self, records: Iterable[Record]) -> Iterator[NewItem]:
        """Yields what the index lacks, or has otherwise."""
        items = self._lacking(records)
        while batch := list(islice(items, _BATCH_ITEM_COUNT)):
            # Before they are sent: the job knows of whatever may be stored.
            self._job.write(row for row, _ in batch)
            self._pictures |= {row.item_id for row, _ in batch if row.item_id == row.record_id}
            for _, item in batch:
                with self._changed:
                    self._changed.wait_for(
                        lambda: self._is_over or self._pending_count < _MAX_PENDING_COUNT
                    )
                    self._pending_count += 1
                if self._is_over:
                    return
                yield item

    @property
    def done_count(self) -> int:
        """Pictures that are stored or refused, or were before."""
        return self._done_count + self.unchanged_count

    def note_progress(self, progress: IngestProgress) -> None:
        """Lets as many items follow as have an answer, be it that they wait to be sent again."""
        count = progress.done_count + progress.waiting_count
        with self._changed:
            self._pending_count -= count - self._answered_count
            self._answered_count = count
            self._changed.notify()

    def note(self, outcome: IngestOutcome, *, is_last: bool) -> None:
        """Notes the outcome of an item, and with the last of its batch keeps it."""
        error, item_id = outcome.error, outcome.item_id
        if error is None:
            self._answers.append((Status.STORED, "", item_id))
            self.token = outcome.consistency_token
        elif not may_be_stored_later(error):
            self._answers.append((Status.REFUSED, f"{error.reason}: {error.message}", item_id))
            about = {"item_id": item_id, "reason": error.reason, "message": error.message}
            event("refused", about)
        self._done_count += item_id in self._pictures
        self._pictures.discard(item_id)
        if is_last:
            self._keep()

    def end(self) -> None:
        """Keeps what was noted, and yields no more."""
        self._keep()
        with self._changed:
            self._is_over = True
            self._changed.notify()

    def differing(self, records: Iterable[Record]) -> Iterator[tuple[Record, list[NewRow]]]:
        """Yields the items of each record that is not known to be as it was."""
        for record, content in self._read(self._unlike_job(records)):
            self.read_count += 1
            state = self._states.pop(record.record_id)
            rows = [
                (replace(row, state=state), item) for row, item in self._form.items(record, content)
            ]
            if (same := self._same.pop(record.record_id, None)) is not None:
                row, item = rows[0]
                rows[0] = replace(row, size=same.size, digest=same.digest), item
            yield record, rows

    def _keep(self) -> None:
        self._job.answer(self._answers)
        self._answers.clear()

    def _lacking(self, records: Iterable[Record]) -> Iterator[NewRow]:
        for record, own in self.differing(records):
            row, (_, picture, _) = own[0]
            if self._is_duplicate is not None and self._is_duplicate(row, picture):
                self.unchanged_count += 1
                continue
            known = self._job.rows(record.record_id)
            kept: list[Row] = []
            for row, item in own:
                before = known.pop(row.item_id, None)
                if before is None or not row.is_stored_as(before):
                    yield row, self._sendable(item)
                elif row.attributes == before.attributes:
                    kept.append(replace(row, status=Status.STORED))
                else:
                    self.changed.append((row, before))
            self.unchanged_count += len(kept) == len(own)
            self._job.write([*kept, *(replace(row, record_id="") for row in known.values())])

    def _unlike_job(self, records: Iterable[Record]) -> Iterator[Record]:
        for record in records:
            self.seen.add(record.record_id)
            state = self._form.state(record)
            if state and not self._reads_all:
                known = self._job.rows(record.record_id)
                seen = {(row.state, row.status is Status.SENT) for row in known.values()}
                picture = known.get(record.record_id)
                # A kill may leave a part of its items, and a copy one of them; a duplicate has one.
                is_skipped = picture is not None and picture.status is Status.DUPLICATE
                is_whole = is_skipped or known.keys() >= self._form.item_ids(record)
                # Nothing changed, and all was answered.
                if is_whole and seen == {(state, False)}:
                    self.unchanged_count += 1
                    continue
                # Captions or attributes changed.
                is_stored = picture is not None and picture.status is Status.STORED
                if picture and is_stored and picture.file == state.partition(" ")[2]:
                    self._same[record.record_id] = picture
                    record = replace(record, image=HeldPicture(b"", str(record.image)))
            self._states[record.record_id] = state
            yield record

    def _sendable(self, item: tuple[str, Any, Attributes]) -> tuple[str, Any, Attributes]:
        item_id, content, attributes = item
        sendable = sendable_picture(content) if isinstance(content, bytes) else content
        self.scaled_down_count += sendable is not content
        return item_id, sendable, attributes


def with_row(
    record_id: str, item_id: str, content: NewContent | Content | None, attributes: Attributes
) -> NewRow:
    """Returns the row of an item that is to be sent, or that is stored, and the item."""
    match content:
        case str(text) | TextContent(text):
            data = b"text " + text.encode()  # No file is equal to it.
        case RegionContent():
            data = content.features + content.boxes
        case ImageContent(image_bytes):
            data = image_bytes
        case _:
            data = content or b""
    digest = b"" if content is None else sha256(data).digest()
    written = json.dumps(attributes, sort_keys=True, default=str)
    row = Row(item_id, record_id, "", len(data), digest, written)
    return row, (item_id, content, attributes)


def _attribute_captions(record: Record) -> tuple[str, ...]:
    """Returns the captions that fit into an attribute: the first 64, of at most 1,024 bytes."""
    texts = dict.fromkeys(caption.text for caption in record.captions)
    fitting = [text for text in texts if len(text.encode()) <= MAX_TEXT_BYTES]
    return tuple(fitting[:MAX_TEXTS_COUNT])
