"""Streams the records of one split, and checks what every corpus must guarantee."""

import unicodedata
from collections.abc import Iterable, Iterator

from tandem.corpus.errors import CorpusMalformed, NothingRead
from tandem.corpus.left_out import LeftOut, ReaderFault
from tandem.corpus.records import Record


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
                self.left_out.uncaptioned_count += not (record.captions or record.captions_fault)
                return record
        raise StopIteration

    def _is_taken(self, record: Record) -> bool:
        named = f"{record.record_id!a} ({record.image})"
        try:
            same, owner = self._ids.add(record)
        except UnicodeEncodeError as error:
            message = f"{named}: a lone surrogate in the id {error.object!a}; correct it"
            self.left_out.refuse(CorpusMalformed(message), ReaderFault.ID_UNREADABLE)
            return False
        if same:
            message = (
                f"{named}: the record or a caption of it would be called {same!r}, as is record "
                f"{owner!r} or one of its captions; give each a name of its own"
            )
            self.left_out.refuse(CorpusMalformed(message), ReaderFault.SAME_ID)
        return not same


class _ItemIds:
    """Holds the ids of all items so far, in NFC.

    A caption's id is usually its record's followed by "#en-0". Of these only the suffixes are kept,
    and equal tuples of suffixes once, because six million captions would fill a gigabyte.
    """

    def __init__(self) -> None:
        self._ends: dict[str, tuple[str, ...]] = {}
        """Suffixes of the captions' ids, by record."""
        self._others: dict[str, str] = {}
        """The record of each caption with any other id."""
        self._known_ends: dict[tuple[str, ...], tuple[str, ...]] = {}

    def add(self, record: Record) -> tuple[str, str]:
        """Adds a record's ids and returns two empty strings.

        If an id is taken, adds none and returns the id and its owner. Raises UnicodeEncodeError for
        an id with a lone surrogate.
        """
        record_id = unicodedata.normalize("NFC", record.record_id)
        own: set[str] = set()
        for item_id in (record.record_id, *(each.caption_id for each in record.captions)):
            item_id.encode()
            key = unicodedata.normalize("NFC", item_id)
            owner = record_id if key in own else self._owner(key)
            if owner is not None:
                return item_id, owner
            own.add(key)
        start = f"{record_id}#"
        ends = tuple(each.removeprefix(start) for each in sorted(own) if each.startswith(start))
        self._ends[record_id] = self._known_ends.setdefault(ends, ends)
        for key in own:
            if key != record_id and not key.startswith(start):
                self._others[key] = record_id
        return "", ""

    def _owner(self, key: str) -> str | None:
        """Returns the record that has the id, or whose caption has it."""
        if key in self._ends:
            return key
        if key in self._others:
            return self._others[key]
        position = key.find("#")
        while position >= 0:
            if key[position + 1 :] in self._ends.get(key[:position], ()):
                return key[:position]
            position = key.find("#", position + 1)
        return None
