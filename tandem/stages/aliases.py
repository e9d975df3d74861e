"""Defines the record of an alias: which generation of an index its callers get, and who keeps it.

Shard 0 has the record as the note "alias/NAME"; the copies on other shards are hints. An index
without a record is the first and only generation of an alias of its own name.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tandem.contract.generation_ids import alias_of
from tandem.errors import InternalFault
from tandem.platform.files.json_object import from_fields, object_of
from tandem.stages.notes import Note

ALIAS_PREFIX = "alias/"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """Keeps fields that a later release added, as `from_fields` finds them."""

    further: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Generation(_Kept):
    """Names an index of one model."""

    index_id: str
    fingerprint: str = ""
    """Of the model; empty where the first item decides it."""
    created_time: float = 0.0
    """Unix seconds, as all times here."""


@dataclass(frozen=True, slots=True)
class Lease(_Kept):
    """Says which process follows the writes of the serving generation."""

    holder: str = ""
    """Empty if none does."""
    term: int = 0
    """Of its writes (`WriterRule`); a later holder has a higher one."""
    heartbeat: int = 0
    """Counts while the holder lives; others see by their own clocks that it stopped."""


@dataclass(frozen=True, slots=True)
class WantedChange(_Kept):
    """Holds what an operator asked for, until a keeper has carried it out."""

    kind: str
    """Promote, rollback or drop."""
    index_id: str
    """The generation that is not to serve yet, again, or any more."""
    why: str = ""
    """For a rollback; for a promotion the gate's figures, or why it needs none."""
    caller: str = ""
    asked_time: float = 0.0


@dataclass(frozen=True, slots=True)
class WantedOutcome(_Kept):
    """Says what became of the last request."""

    text: str
    asked_time: float = 0.0
    """Of the request."""
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class AliasRecord(_Kept):
    """Says which generation serves the callers of an alias, and which others there are."""

    alias: str
    serving: str
    """The index id of a generation."""
    generations: tuple[Generation, ...]
    next_number: int = 2
    """Of the next generation; no number is given twice."""
    previous: str = ""
    """The index id that a rollback serves; empty if there is none."""
    switch_count: int = 0
    """How often another generation began to serve; `AliasBook.put` counts."""
    lease: Lease = field(default_factory=Lease)
    wanted: WantedChange | None = None
    outcome: WantedOutcome | None = None
    promoted_time: float = 0.0
    rolled_back_why: str = ""
    revision: int = 0
    """Of the note on shard 0; 0 where there is no record."""

    @classmethod
    def of_index(cls, alias: str) -> "AliasRecord":
        """Returns what holds for an index without a record."""
        return cls(alias, alias, (Generation(alias),))

    @classmethod
    def of_note(cls, note: Note) -> "AliasRecord":
        """Returns the record that the note holds, with the note's revision.

        Raises InternalFault for anything else: no generation is guessed.
        """
        alias = note.key.removeprefix(ALIAS_PREFIX)
        try:
            record = from_fields(cls, object_of(note.value, "it"))
            if record.alias != alias or alias_of(record.serving) != alias:
                raise ValueError(f"it is of {record.alias} and serves {record.serving}")
            if not record.has(record.serving):
                raise ValueError(f"it has no generation {record.serving}")
        except ValueError as error:
            raise InternalFault(why=f"the record of alias {alias} is damaged: {error}") from None
        return replace(record, revision=note.revision)

    @property
    def key(self) -> str:
        """Returns the key of the record's note."""
        return ALIAS_PREFIX + self.alias

    @property
    def value(self) -> str:
        """Returns the text of the record's note."""
        return json.dumps(_written(asdict(self)))

    def has(self, index_id: str) -> bool:
        """Returns whether there is a generation of that id."""
        return any(each.index_id == index_id for each in self.generations)

    def fingerprint_of(self, index_id: str) -> str:
        """Returns the fingerprint of the generation's model; empty where it is unknown."""
        found = (each.fingerprint for each in self.generations if each.index_id == index_id)
        return next(found, "")


def _written(value: Any) -> Any:  # noqa: ANN401 (a part of a record)
    if isinstance(value, dict):
        return {n: _written(e) for n, e in value.items() if n != "further"} | value.get(
            "further", {}
        )
    return [_written(each) for each in value] if isinstance(value, list | tuple) else value
