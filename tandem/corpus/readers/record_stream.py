"""Streams the records of one split, and checks what every corpus must guarantee."""

import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from tandem.corpus.errors import CorpusMalformed, NothingRead
from tandem.corpus.left_out import LeftOut, ReaderFault
from tandem.corpus.records import Record

_RECENT_COUNT: Final = 2**16


class RecordStream(Iterator[Record]):
    """Yields records whose ids, and whose captions' ids, are unique.

    Two items with one id would overwrite each other. NFC and NFD spellings count as one id, because
    the file system chooses between them.
    """

    def __init__(
        self,
        records: Iterable[Record],
        place: object,
        left_out: LeftOut | None = None,
        total: int | None = None,
        *,
        is_undivided: bool = False,
    ) -> None:
        """`total` is the number of records if it is known; fewer may be yielded.

        `is_undivided` marks a corpus without splits, of which each split is the whole.
        """
        self._records = iter(records)
        self._place = place
        self._ids = _ItemIds()
        self._given_count = 0
        self._limit: int | None = None
        self.left_out = LeftOut() if left_out is None else left_out
        self._total = total
        self.is_undivided = is_undivided

    @property
    def total(self) -> int | None:
        """The maximum number of records, if the corpus knows it cheaply."""
        if self._limit is None or self._total is None:
            return self._total
        return min(self._limit, self._total)

    def limited(self, count: int | None) -> "RecordStream":
        """Returns the stream itself, limited to the first `count` records if given."""
        self._limit = count
        return self

    def __iter__(self) -> "RecordStream":
        return self

    def __next__(self) -> Record:
        """Returns the next record.

        Raises what the corpus's reader raises, CorpusMalformed for an id that another item has or
        that is not text, and NothingRead if there was no record at all.
        """
        while self._limit is None or self._given_count < self._limit:
            try:
                record = next(self._records)
            except StopIteration:
                if not self._given_count:
                    self._given_count = -1  # raised once
                    why = self.left_out.summary() or "there is no record"
                    raise NothingRead(f"{self._place}: nothing was read; {why}") from None
                raise
            if self._is_taken(record):
                self._given_count += 1
                self.left_out.uncaptioned_count += not (
                    record.captions or record.captions_fault or record.text
                )
                return record
        raise StopIteration

    def _is_taken(self, record: Record) -> bool:
        named = f"{record.record_id!a} ({record.image})"
        try:
            same = self._ids.add(record)
        except UnicodeEncodeError as error:
            message = f"{named}: a lone surrogate in the id {error.object!a}; correct it"
            self.left_out.refuse(CorpusMalformed(message), ReaderFault.ID_UNREADABLE)
            return False
        if same:
            message = (
                f"{named}: the record or a caption of it would be called {same!r}, as is a record "
                "or caption before it; give each a name of its own"
            )
            self.left_out.refuse(CorpusMalformed(message), ReaderFault.SAME_ID)
        return not same


def id_key(item_id: str) -> int:
    """Returns 64 bits of the hash of an id in NFC."""
    return hash(unicodedata.normalize("NFC", item_id))


class _ItemIds:
    """Holds the key of each id so far: 8 bytes, since there may be millions."""

    def __init__(self) -> None:
        self._sorted = np.empty(0, np.int64)
        self._recent: set[int] = set()

    def add(self, record: Record) -> str:
        """Adds a record's ids; returns one that is taken and adds none, or an empty string.

        Raises UnicodeEncodeError for an id with a lone surrogate.
        """
        own: set[int] = set()
        for item_id in (record.record_id, *(each.caption_id for each in record.captions)):
            item_id.encode()
            key = id_key(item_id)
            place = int(np.searchsorted(self._sorted, key))
            is_old = place < len(self._sorted) and self._sorted[place] == key
            if is_old or key in self._recent or key in own:
                return item_id
            own.add(key)
        self._recent |= own
        if len(self._recent) >= _RECENT_COUNT:
            recent = np.fromiter(self._recent, np.int64)
            self._sorted = np.sort(np.concatenate([self._sorted, recent]), kind="stable")
            self._recent.clear()
        return ""
