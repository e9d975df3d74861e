"""Keeps what the scores of each index mean in a note of shard 0, and follows it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf import json_format

from tandem.contract.deadline import Deadline
from tandem.contract.generation_ids import alias_of
from tandem.contract.identifiers import check_index_id
from tandem.contract.search.query import SearchQuery
from tandem.contract.search.score_calibration import (
    SCORE_CALIBRATION_WIRE,
    ScoreCalibration,
    calibrations_with,
)
from tandem.errors import InternalFault, NoteChanged, TandemError
from tandem.stages.notes import Note, PutNote
from tandem.stages.shard import Shard
from tandem.v1 import score_calibration_pb2 as pb

_PREFIX = "calibration/"
_FOLLOW_SECONDS = 1.0
"""For so long a search takes what was read last."""
_READ_SECONDS = 0.5
"""A shard that is slower does not hold up searches."""
_KEPT_COUNT = 1_000


@dataclass(slots=True)
class _Kept:
    """Holds what is known of one alias."""

    calibrations: Sequence[ScoreCalibration] = ()
    revision: int = -1
    read_time: float = 0.0
    """When a search began to read it; the others take what is known meanwhile."""
    fault: TandemError | None = None
    """Why nothing is known; None once the note was read, also if there is none."""


class Calibrations:
    """Gives the calibrations of an index, also while shard 0 is away: those known last."""

    def __init__(self, shard: Shard) -> None:
        """Takes shard 0."""
        self._shard = shard
        self._kept: dict[str, _Kept] = {}

    async def of(self, query: SearchQuery, deadline: Deadline) -> Sequence[ScoreCalibration]:
        """Returns those of the query's index.

        Raises why nothing is known, if the query cannot be answered without.
        """
        alias = alias_of(query.index_id)
        if len(self._kept) >= _KEPT_COUNT:  # Strangers name indexes that do not exist.
            self._kept.clear()
        kept = self._kept.setdefault(alias, _Kept())
        is_unread = kept.revision < 0 and kept.fault is None
        if is_unread or time.monotonic() - kept.read_time > _FOLLOW_SECONDS:
            await self._read(kept, alias, Deadline.after(min(_READ_SECONDS, deadline.left())))
        if kept.fault is not None and query.ranking.max_false_answer_rate is not None:
            raise kept.fault
        return kept.calibrations

    async def put(
        self, index_id: str, measured: Sequence[ScoreCalibration], deadline: Deadline
    ) -> int:
        """Replaces those of the same kinds; returns how many there are.

        Raises NoteChanged if other callers are always faster.
        """
        while True:
            note = await self._shard.note(_PREFIX + alias_of(index_id), deadline)
            calibrations = calibrations_with(_calibrations(note), measured)
            message = pb.AliasCalibrations(
                calibrations=map(SCORE_CALIBRATION_WIRE.to_proto, calibrations)
            )
            try:
                await self._write(note, json_format.MessageToJson(message, indent=None), deadline)
            except NoteChanged:
                if deadline.left() <= 0:
                    raise
            else:
                return len(calibrations)

    async def forget(self, index_id: str, deadline: Deadline) -> None:
        """Removes those of an index that ends; a generation's end leaves its alias's."""
        if alias_of(check_index_id(index_id)) == index_id:
            note = await self._shard.note(_PREFIX + index_id, deadline)
            if note.value:
                await self._write(note, "", deadline)

    async def _read(self, kept: _Kept, alias: str, deadline: Deadline) -> None:
        kept.read_time = time.monotonic()
        try:
            note = await self._shard.note(_PREFIX + alias, deadline)
            if note.revision != kept.revision:
                kept.calibrations, kept.revision = _calibrations(note), note.revision
            kept.fault = None
        except TandemError as error:
            if kept.revision < 0:
                kept.fault = error.kept()

    async def _write(self, note: Note, value: str, deadline: Deadline) -> None:
        await self._shard.write(PutNote(note.key, value, note.revision), deadline)
        self._kept.pop(note.key.removeprefix(_PREFIX), None)


def _calibrations(note: Note) -> tuple[ScoreCalibration, ...]:
    if not note.value:
        return ()
    try:
        message = json_format.Parse(note.value, pb.AliasCalibrations(), ignore_unknown_fields=True)
    except json_format.ParseError:
        raise InternalFault(why=f"note {note.key!r} cannot be read") from None
    return tuple(map(SCORE_CALIBRATION_WIRE.from_proto, message.calibrations))
