"""Defines the notes that a shard keeps, and who may write an index, as its note says."""

import json
from dataclasses import dataclass
from typing import ClassVar

from tandem.contract.identifiers import check_index_id
from tandem.contract.limits import MAX_NOTE_BYTES
from tandem.errors import NoteChanged, RequestMalformed, WriterRefused

WRITER_PREFIX = "writer/"
_MAX_KEY_BYTES = 256


@dataclass(frozen=True, slots=True)
class Note:
    """Holds a small text that a shard keeps under a key."""

    key: str
    """For example "alias/photos"."""
    value: str
    """JSON; empty where there is no such note."""
    revision: int
    """Counts from 1; 0 where there never was such a note."""


@dataclass(frozen=True, slots=True)
class PutNote:
    """Replaces a note that no other process replaced meanwhile; raises RequestMalformed."""

    key: str
    value: str
    """An empty one removes the note, which keeps its revision."""
    replaced_revision: int
    index_id: str = ""
    request_id: str = ""
    record_count: ClassVar[int] = 0
    """It changes no item."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.key.encode()) <= _MAX_KEY_BYTES:
            raise RequestMalformed(why=f"a note's key has 1 to {_MAX_KEY_BYTES} bytes")
        if len(self.value.encode()) > MAX_NOTE_BYTES:
            raise RequestMalformed(why=f"a note has at most {MAX_NOTE_BYTES:,} bytes")
        if self.key.startswith(WRITER_PREFIX) or "\0" in self.key + self.value:
            raise RequestMalformed(why="a note has no NUL, and SetWriter keeps who may write")

    def replacing(self, stored: Note | None) -> Note:
        """Returns the note to store; raises NoteChanged if another was stored meanwhile."""
        revision = stored.revision if stored else 0
        if revision != self.replaced_revision:
            raise NoteChanged(key=self.key, revision=revision)
        return Note(self.key, self.value, revision + 1)


@dataclass(frozen=True, slots=True)
class WriterRule:
    """Says who may write an index on a shard: callers while it is open, else one follower."""

    term: int = 0
    """Of the newest follower; one of an earlier term is refused."""
    is_open: bool = True
    progress: str = ""
    """What the follower noted, JSON."""

    @classmethod
    def of(cls, note: Note | None) -> "WriterRule":
        """Returns the rule that the note holds; callers may write an index without one."""
        return cls(**json.loads(note.value)) if note and note.value else cls()

    def check(self, index_id: str, term: int) -> None:
        """Raises WriterRefused for a write of that term; callers write with term 0."""
        if self.is_open if term else not self.is_open:
            who = "callers" if self.is_open else f"the follower of term {self.term}"
            raise WriterRefused(index_id=index_id, who=who)
        if term and term < self.term:
            raise WriterRefused(index_id=index_id, who=f"the follower of term {self.term}")


@dataclass(frozen=True, slots=True)
class SetWriter:
    """Opens or closes an index to callers; raises IndexIdInvalid.

    The outcome's sequence comes after every write that the rule before allowed.
    """

    index_id: str
    term: int
    is_open: bool
    progress: str = ""
    request_id: str = ""
    record_count: ClassVar[int] = 0
    """It changes no item."""

    def __post_init__(self) -> None:
        check_index_id(self.index_id)

    @property
    def key(self) -> str:
        """Returns the key of the note that holds the rule."""
        return WRITER_PREFIX + self.index_id

    def replacing(self, stored: Note | None) -> Note:
        """Returns the note to store; raises WriterRefused if a later follower set the rule."""
        rule = WriterRule.of(stored)
        if self.term < rule.term:
            raise WriterRefused(index_id=self.index_id, who=f"the follower of term {rule.term}")
        value = {"term": self.term, "is_open": self.is_open, "progress": self.progress}
        return Note(self.key, json.dumps(value), (stored.revision if stored else 0) + 1)
