"""What a shard was asked to write and what it answered: the judge of what it holds after a crash.

Every upserted item has a version, a number never used again, from which its content, tokens and
embedding are made; so one item's stored state is its version, or None where it is not there.
"""

from collections.abc import Iterable, Mapping

Version = int | None


class History:
    """The versions that items must or may have."""

    def __init__(self) -> None:
        """Begins with no items."""
        self._answered: dict[str, Version] = {}
        self._unanswered: list[Mapping[str, Version]] = []
        self.answered_count = 0

    def answered(self, batch: Mapping[str, Version]) -> None:
        """Notes a batch that was acknowledged: its items must have these versions."""
        self._answered.update(batch)
        self.answered_count += 1

    def unanswered(self, batch: Mapping[str, Version]) -> None:
        """Notes a batch that was not: its items have these versions, or all their old ones."""
        self._unanswered.append(batch)

    @property
    def item_ids(self) -> list[str]:
        """Every id that was ever written, sorted."""
        return sorted(self._answered.keys() | {i for batch in self._unanswered for i in batch})

    def faults(self, found: Mapping[str, Version]) -> list[str]:
        """Returns what is wrong with the versions found: lost, stale, phantom or half a batch."""
        allowed = {item_id: self._answered.get(item_id) for item_id in self.item_ids}
        faults: list[str] = []
        for batch in self._unanswered:
            # Each writer writes its own ids and stops at its first failure, so no two overlap.
            is_new = [found.get(item_id) == version for item_id, version in batch.items()]
            is_old = [found.get(item_id) == allowed[item_id] for item_id in batch]
            if all(is_new):
                allowed |= batch
            elif not all(is_old):
                faults.append(f"half a batch: {sorted(batch)}")
        return faults + list(_differences(allowed, found))

    def settle(self, found: Mapping[str, Version]) -> None:
        """Takes the versions found for the truth from which the next writes go on."""
        for batch in self._unanswered:
            self._answered.update({item_id: found.get(item_id) for item_id in batch})
        self._unanswered.clear()


def _differences(expected: Mapping[str, Version], found: Mapping[str, Version]) -> Iterable[str]:
    for item_id in sorted(expected.keys() | found.keys()):
        want, have = expected.get(item_id), found.get(item_id)
        if want is not None and have is None:
            yield f"lost: {item_id} of version {want}"
        elif want is None and have is not None:
            yield f"phantom: {item_id} of version {have}"
        elif want != have:
            yield f"stale: {item_id} has version {have}, not {want}"
