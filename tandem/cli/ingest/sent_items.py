"""Sends of a source what the record of its job lacks, and notes the outcome."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from typing import Final

from tandem.cli.corpora.detector_files import SentRecord
from tandem.cli.ingest.job_record import JobRecord, Row, Status
from tandem.cli.smaller_jpeg import sendable_picture
from tandem.client import IngestOutcome, IngestProgress, NewContent, NewItem, RegionContent
from tandem.client.ingest.rounds import may_be_stored_later
from tandem.contract.filtering.attributes import MAX_TEXT_BYTES, MAX_TEXTS_COUNT, Attributes
from tandem.corpus.records import Record

BATCH_ITEM_COUNT: Final = 32
# What a kill has encoded in vain, at most.
_MAX_PENDING_COUNT: Final = 2 * BATCH_ITEM_COUNT
# A file that changes again within the time that a file system's clock tells apart looks the same.
_SETTLED_SECONDS: Final = 2.0

Reader = Callable[[Iterable[Record]], Iterable[SentRecord]]
"""Reads what is sent for each record, and leaves out those that cannot be read."""


@dataclass(frozen=True, slots=True)
class ItemForm:
    """How a record becomes items."""

    captions: bool
    """Whether its captions are items too."""
    caption_attribute: str | None
    """The attribute of the image that has the captions, if one has."""
    other: str = ""
    """What else of the command's options changes what is stored."""

    def state(self, record: Record) -> str:
        """Returns what is the same as long as the record is; empty if only reading it tells.

        For a file that is its path, size and time.
        """
        stat = record.image.stat()
        if (
            stat is None
            or record.captions_fault
            or abs(time.time() - stat.mtime_ns / 1e9) < _SETTLED_SECONDS
        ):
            return ""
        captions = [(each.caption_id, each.text, each.language) for each in record.captions]
        known = (*self._named(), record.split, captions, record.attributes)
        about = sha256(json.dumps(known, default=str).encode()).hexdigest()[:32]
        return f"{about} {stat.size_bytes} {stat.mtime_ns} {record.image}"

    def items(self, record: Record, content: NewContent) -> Iterator[tuple[Row, NewItem]]:
        """Yields the image and its captions, each with its row.

        All have the corpus's attributes, the split and the language, an image that of each caption.
        """
        shared: Attributes = {"split": record.split, **record.attributes}
        languages = sorted({caption.language for caption in record.captions})
        attributes: Attributes = {"language": tuple(languages), **shared}
        if self.caption_attribute is not None:
            attributes = {**attributes, self.caption_attribute: _attribute_captions(record)}
        yield _with_row(record, record.record_id, content, attributes)
        for caption in record.captions if self.captions else ():
            own = {**shared, "language": caption.language}
            yield _with_row(record, caption.caption_id, caption.text, own)

    def _named(self) -> tuple[object, ...]:
        return self.captions, self.caption_attribute, self.other


class SentItems:
    """The items of a source that are to be sent, and how many pictures are done.

    gRPC takes the items in a thread of its own. It gets no more than two batches ahead of their
    answers, so that a kill wastes no more work.
    """

    def __init__(self, job: JobRecord, form: ItemForm, read: Reader) -> None:
        self.scaled_down_count = self.unchanged_count = self.read_count = 0
        self.seen: set[str] = set()
        """Ids of the records that the source has."""
        self._job, self._form, self._read = job, form, read
        self._states: dict[str, str] = {}
        self._pictures: set[str] = set()
        """Ids of those that have no answer."""
        self._changed = threading.Condition()
        self._taken_count = self._answered_count = self._done_count = 0
        self._is_over = False
        self._answers: list[tuple[str, Status, str]] = []

    def of(self, records: Iterable[Record]) -> Iterator[NewItem]:
        """Yields what the index lacks, or has otherwise."""
        items = self._lacking(records)
        while batch := list(islice(items, BATCH_ITEM_COUNT)):
            # Before they are sent: the job knows of whatever may be stored.
            self._job.write(row for row, _ in batch)
            self._pictures |= {row.item_id for row, _ in batch if row.item_id == row.record_id}
            for _, item in batch:
                with self._changed:
                    self._changed.wait_for(
                        lambda: self._is_over or self._pending_count < _MAX_PENDING_COUNT
                    )
                    self._taken_count += 1
                if self._is_over:
                    return
                yield item

    @property
    def done_count(self) -> int:
        """Pictures that are stored or refused, or were before."""
        return self._done_count + self.unchanged_count

    def note_progress(self, progress: IngestProgress) -> None:
        """Lets as many items follow as have an answer, be it that they wait to be sent again."""
        with self._changed:
            self._answered_count = progress.done_count + progress.waiting_count
            self._changed.notify()

    def note(self, outcome: IngestOutcome, *, is_last: bool) -> None:
        """Notes the outcome of an item, and with the last of its batch keeps it."""
        error = outcome.error
        if error is None:
            self._answers.append((outcome.item_id, Status.STORED, ""))
        elif not may_be_stored_later(error):
            why = f"{error.reason}: {error.message}"
            self._answers.append((outcome.item_id, Status.REFUSED, why))
        self._done_count += outcome.item_id in self._pictures
        self._pictures.discard(outcome.item_id)
        if is_last:
            self._keep()

    def end(self) -> None:
        """Yields no more items, and keeps what was noted."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        self._keep()

    def _keep(self) -> None:
        self._job.answer(self._answers)
        self._answers.clear()

    @property
    def _pending_count(self) -> int:
        return self._taken_count - self._answered_count

    def _lacking(self, records: Iterable[Record]) -> Iterator[tuple[Row, NewItem]]:
        for record, content in self._read(self._unlike_job(records)):
            state = self._states.pop(record.record_id)
            self.read_count += 1
            known = self._job.rows(record.record_id)
            own = {row.item_id: (row, item) for row, item in self._form.items(record, content)}
            same: list[Row] = []
            for item_id, (row, item) in own.items():
                row = replace(row, state=state)
                if is_stored(row, known.get(item_id)):
                    same.append(replace(row, status=Status.STORED))
                else:
                    yield row, self._sendable(item)
            self._job.write(same)
            self._job.detach(known.keys() - own.keys())
            self.unchanged_count += len(same) == len(own)

    def _unlike_job(self, records: Iterable[Record]) -> Iterator[Record]:
        for record in records:
            self.seen.add(record.record_id)
            state = self._form.state(record)
            if is_unchanged(state, self._job.rows(record.record_id).values()):
                self.unchanged_count += 1
                continue
            self._states[record.record_id] = state
            yield record

    def _sendable(self, item: NewItem) -> NewItem:
        item_id, content, attributes = item  # type: ignore[misc]
        if not isinstance(content, bytes):
            return item
        sendable = sendable_picture(content)
        self.scaled_down_count += sendable is not content
        return item_id, sendable, attributes


def is_unchanged(state: str, rows: Iterable[Row]) -> bool:
    """Returns whether a record need not be read: nothing of it changed, and all was answered."""
    found = {(row.state, row.status is Status.SENT) for row in rows}
    return bool(state) and found == {(state, False)}


def is_stored(row: Row, known: Row | None) -> bool:
    """Returns whether the index has the item as it is."""
    return (
        known is not None
        and known.status is Status.STORED
        and (known.digest, known.attributes) == (row.digest, row.attributes)
    )


def _with_row(
    record: Record, item_id: str, content: NewContent, attributes: Attributes
) -> tuple[Row, NewItem]:
    match content:
        case str():
            data = content.encode()
        case RegionContent():
            data = content.features + content.boxes
        case bytes():
            data = content
    digest = sha256(data).digest()
    written = json.dumps(attributes, sort_keys=True, default=str)
    row = Row(item_id, record.record_id, "", len(data), digest, written)
    return row, (item_id, content, attributes)


def _attribute_captions(record: Record) -> tuple[str, ...]:
    """Returns the captions that fit into an attribute: the first 64, of at most 1,024 bytes."""
    texts = dict.fromkeys(caption.text for caption in record.captions)
    fitting = [text for text in texts if len(text.encode()) <= MAX_TEXT_BYTES]
    return tuple(fitting[:MAX_TEXTS_COUNT])
