"""Judges what a shard holds after a fault, from the writes it was sent and its answers.

Every upserted item has a version, a number never used again, from which all its parts are made; so
one item's state is its version, or None if it is missing. A call's outcome is known (answered or
refused) or unknown: then it was executed wholly or not at all, before or after any concurrent call.
Answered calls are in the order of their sequence numbers.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Version = int | None


class FindingKind(StrEnum):
    """Names what can be wrong with an item after a fault."""

    MISSING = "missing"
    """It was acknowledged and is gone, or back at an older version."""
    DUPLICATE = "duplicate"
    """It is there twice, or was written twice."""
    PHANTOM = "phantom"
    """It is there and should not be: deleted, refused, or never written."""
    MALFORMED = "malformed"
    """Its parts do not belong together, or half a batch is there."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Describes one finding."""

    kind: FindingKind
    item_id: str
    why: str


class Outcome(StrEnum):
    """Says what the caller knows of a call."""

    UNKNOWN = "unknown"
    ANSWERED = "answered"
    REFUSED = "refused"


@dataclass(slots=True, eq=False)
class Call:
    """Describes one write: what it changes, when it began and ended, and its outcome."""

    changes: Mapping[str, Version]
    request_id: str
    start_time: float
    first_sequence_after: int
    end_time: float | None = None
    outcome: Outcome = Outcome.UNKNOWN
    sequence: int = 0
    change_count: int = 0


@dataclass(slots=True)
class History:
    """Holds all calls since the state was last known, and that state."""

    known: dict[str, Version] = field(default_factory=dict)
    known_sequence: int = 0
    calls: list[Call] = field(default_factory=list)
    outcome_counts: Counter[Outcome] = field(default_factory=Counter)
    last_sequence: int = 0
    _calls_by_item: dict[str, list[Call]] = field(default_factory=dict)

    def begin(self, changes: Mapping[str, Version], request_id: str = "") -> Call:
        """Records a call before it is made, with unknown outcome."""
        call = Call(changes, request_id, time.monotonic(), self.last_sequence)
        self.calls.append(call)
        for item_id in changes:
            self._calls_by_item.setdefault(item_id, []).append(call)
        return call

    def answered(self, call: Call, sequence: int, change_count: int) -> None:
        """Records that the call was acknowledged, and how many changes it made."""
        self._end(call, Outcome.ANSWERED)
        call.sequence, call.change_count = sequence, change_count
        self.last_sequence = max(self.last_sequence, sequence)

    def refused(self, call: Call) -> None:
        """Records that the call failed for a reason that means it changed nothing."""
        self._end(call, Outcome.REFUSED)

    def unknown(self, call: Call) -> None:
        """Records that the call failed but may have been executed."""
        self._end(call, Outcome.UNKNOWN)

    @property
    def item_ids(self) -> list[str]:
        """Returns every id that was ever written or tried, sorted."""
        return sorted(self.known.keys() | self._calls_by_item.keys())

    def findings(self, found: Mapping[str, Version], sequence: int | None = None) -> list[Finding]:
        """Returns what is wrong with the found versions, and with the change log."""
        answered = sorted(
            (call for call in self.calls if call.outcome is Outcome.ANSWERED and call.change_count),
            key=lambda call: call.sequence,
        )
        expected = dict(self.known)
        for call in answered:
            expected.update(call.changes)
        return [
            *self._wrong_versions(expected, found),
            *self._half_batches(expected, found),
            *_disorder(answered),
            *(self._wrong_sequence(answered, sequence) if sequence is not None else ()),
        ]

    def may_be_live(self, item_id: str, start_time: float) -> bool:
        """Returns whether a search that began then may find the item."""
        calls = self._calls_by_item.get(item_id, [])
        before = [
            call
            for call in calls
            if call.outcome is Outcome.ANSWERED
            and call.change_count
            and call.end_time is not None
            and call.end_time < start_time
        ]
        last = max(before, key=lambda call: call.sequence, default=None)
        if (last.changes if last else self.known).get(item_id) is not None:
            return True
        return any(
            call.changes[item_id] is not None
            and call.outcome is not Outcome.REFUSED
            and (last is None or call.outcome is Outcome.UNKNOWN or call.sequence > last.sequence)
            for call in calls
            if call is not last
        )

    def settle(self, found: Mapping[str, Version], sequence: int = 0) -> None:
        """Takes the found state as the start of the next calls."""
        ids = self.item_ids
        self.known = {item_id: found.get(item_id) for item_id in ids}
        self.known_sequence = self.last_sequence = sequence
        self.calls.clear()
        self._calls_by_item.clear()

    def _end(self, call: Call, outcome: Outcome) -> None:
        call.end_time = time.monotonic()
        call.outcome = outcome
        self.outcome_counts[outcome] += 1

    def _wrong_versions(
        self, expected: Mapping[str, Version], found: Mapping[str, Version]
    ) -> Iterator[Finding]:
        for item_id in sorted(expected.keys() | found.keys()):
            want, have = expected.get(item_id), found.get(item_id)
            if have == want or any(have == call.changes[item_id] for call in self._open(item_id)):
                continue
            if have is None:
                yield Finding(FindingKind.MISSING, item_id, f"version {want} was acknowledged")
            elif want is not None and self._was_ever(item_id, have):
                yield Finding(
                    FindingKind.MISSING, item_id, f"is back at {have} from version {want}"
                )
            else:
                yield Finding(FindingKind.PHANTOM, item_id, f"has version {have}, expected {want}")

    def _half_batches(
        self, expected: Mapping[str, Version], found: Mapping[str, Version]
    ) -> Iterator[Finding]:
        for call in self.calls:
            if call.outcome is Outcome.UNKNOWN and self._is_applied(call, expected, found):
                for item_id, version in call.changes.items():
                    have = found.get(item_id)
                    if have != version and not self._is_later(call, item_id, have):
                        batch = ", ".join(sorted(call.changes))
                        yield Finding(FindingKind.MALFORMED, item_id, f"left out of batch {batch}")

    def _is_applied(
        self, call: Call, expected: Mapping[str, Version], found: Mapping[str, Version]
    ) -> bool:
        """Returns whether there is something that only this call can have written."""
        return any(
            found.get(item_id) == version != expected.get(item_id)
            and not any(
                other.changes[item_id] == version
                for other in self._open(item_id)
                if other is not call
            )
            for item_id, version in call.changes.items()
        )

    def _is_later(self, call: Call, item_id: str, version: Version) -> bool:
        """Returns whether another call can have written the version after this one."""
        return any(
            other.changes[item_id] == version
            for other in self._calls_by_item[item_id]
            if other is not call
            and other.outcome is not Outcome.REFUSED
            and (other.end_time is None or other.end_time > call.start_time)
        )

    def _open(self, item_id: str) -> Iterable[Call]:
        calls = self._calls_by_item.get(item_id, [])
        return (call for call in calls if call.outcome is Outcome.UNKNOWN)

    def _was_ever(self, item_id: str, version: Version) -> bool:
        return version == self.known.get(item_id) or any(
            call.changes[item_id] == version
            for call in self._calls_by_item.get(item_id, [])
            if call.outcome is Outcome.ANSWERED
        )

    def _wrong_sequence(self, answered: list[Call], sequence: int) -> Iterator[Finding]:
        """Yields a finding where the calls do not account for the number of changes."""
        least = self.known_sequence + sum(call.change_count for call in answered)
        most = least + sum(len(c.changes) for c in self.calls if c.outcome is Outcome.UNKNOWN)
        if sequence < least:
            yield Finding(
                FindingKind.MISSING, "", f"sequence {sequence}, at least {least} answered"
            )
        elif sequence > most:
            yield Finding(
                FindingKind.DUPLICATE, "", f"sequence {sequence}, at most {most} asked for"
            )


def _disorder(answered: list[Call]) -> Iterator[Finding]:
    """Yields a fault for each call numbered before one that had ended when it began."""
    previous_sequence = 0
    for call in answered:
        item_id = min(call.changes)
        if call.sequence <= call.first_sequence_after:
            why = f"sequence {call.sequence} after {call.first_sequence_after} was answered"
            yield Finding(FindingKind.MALFORMED, item_id, why)
        elif call.sequence - call.change_count < previous_sequence:
            why = f"its sequence {call.sequence} overlaps with {previous_sequence}"
            yield Finding(FindingKind.DUPLICATE, item_id, why)
        previous_sequence = call.sequence
