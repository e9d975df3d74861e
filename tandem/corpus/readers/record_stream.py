"""The records of one split as they come, and what every corpus owes of them."""

import unicodedata
from collections.abc import Iterable, Iterator

from tandem.corpus.errors import CorpusMalformed, NothingRead
from tandem.corpus.left_out import LeftOut, ReaderFault
from tandem.corpus.records import Record


class RecordStream(Iterator[Record]):
    """Records, no two of them or of their captions with one id; how many, and what is left out.

    Two items of one id would be stored over one another. NFC and NFD spellings are one id: which
    of them a name has is the disk's choice.
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
        """Makes a stream of `total` records, where that is known; it may turn out to be fewer.

        `is_undivided` where the corpus has no splits, so that each is the whole of it.
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
        """How many records there are at most, where the corpus can say it cheaply."""
        if self._limit is None or self._total is None:
            return self._total
        return min(self._limit, self._total)

    def limited(self, count: int | None) -> "RecordStream":
        """Returns the stream itself, which ends after the first `count` records, if given."""
        self._limit = count
        return self

    def __iter__(self) -> "RecordStream":
        return self

    def __next__(self) -> Record:
        """Returns the next record.

        Raises what the corpus's reader does, CorpusMalformed for an id that another item has or
        that is no text, and NothingRead where there was no record at all.
        """
        while self._limit is None or self._given_count < self._limit:
            try:
                record = next(self._records)
            except StopIteration:
                self._check_some()
                raise
            if self._is_taken(record):
                self._given_count += 1
                self.left_out.uncaptioned_count += not (record.captions or record.captions_fault)
                return record
        raise StopIteration

    def _check_some(self) -> None:
        if not self._given_count:
            self._given_count = -1  # told once
            why = self.left_out.told() or "there is no record"
            raise NothingRead(f"{self._place}: nothing was read; {why}")

    def _is_taken(self, record: Record) -> bool:
        named = f"{record.record_id!a} ({record.image})"
        try:
            same, owner = self._ids.add(record)
        except UnicodeEncodeError as error:
            told = f"{named}: half a character in the id {error.object!a}; mend it"
            self.left_out.refuse(CorpusMalformed(told), ReaderFault.ID_UNREADABLE)
            return False
        if same:
            told = (
                f"{named}: the record or a caption of it would be called {same!r}, as is record "
                f"{owner!r} or one of its captions; give each a name of its own"
            )
            self.left_out.refuse(CorpusMalformed(told), ReaderFault.SAME_ID)
        return not same


class _ItemIds:
    """The ids of all items so far, in NFC.

    A caption's is mostly its record's with "#en-0" behind it: of these the ends alone are kept, and
    those of all records that have the same ones once. Six million captions would fill a gigabyte.
    """

    def __init__(self) -> None:
        self._ends: dict[str, tuple[str, ...]] = {}
        """Of the captions' ids, by record."""
        self._others: dict[str, str] = {}
        """The record of each caption whose id is made otherwise."""
        self._known_ends: dict[tuple[str, ...], tuple[str, ...]] = {}

    def add(self, record: Record) -> tuple[str, str]:
        """Adds a record's ids and returns nothing twice; or the first that is taken, and by whom.

        Then it adds none. Raises UnicodeEncodeError for an id with half a character.
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
        """Returns the record that has the id, or has a caption that has."""
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
