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
        self._owners: dict[str, str] = {}
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
            why = "; ".join(line.strip() for line in self.left_out.lines())
            raise NothingRead(f"{self._place}: nothing was read; {why or 'there is no record'}")

    def _is_taken(self, record: Record) -> bool:
        ids = [record.record_id, *(caption.caption_id for caption in record.captions)]
        named = f"{record.record_id!a} ({record.image})"
        keys: dict[str, str] = {}
        for item_id in ids:
            try:
                item_id.encode()
            except UnicodeEncodeError:
                error = CorpusMalformed(
                    f"{named}: the id {item_id!a} has half a character; mend it"
                )
                self.left_out.refuse(error, ReaderFault.ID_UNREADABLE)
                return False
            key = unicodedata.normalize("NFC", item_id)
            owner = self._owners.get(key, record.record_id if key in keys else None)
            if owner is not None:
                error = CorpusMalformed(
                    f"{named}: the record or a caption of it would be called {item_id!r}, as is "
                    f"record {owner!r} or one of its captions; give each a name of its own"
                )
                self.left_out.refuse(error, ReaderFault.SAME_ID)
                return False
            keys[key] = record.record_id
        self._owners |= keys
        return True
