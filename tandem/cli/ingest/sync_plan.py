"""Decides by which operations an index becomes equal to a source."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tandem.cli.ingest.job_record import JobRecord, Row


@dataclass(frozen=True, slots=True)
class Plan:
    """Operations in the order in which they are safe."""

    copies: Sequence[Sequence[tuple[Row, Row]]]
    """Items to store as copies of others. A later group replaces what an earlier one copies."""
    changed: Sequence[tuple[Row, Row]]
    """Items of the same content, perhaps with other attributes, and how they are stored."""
    encoded: Sequence[Row]
    removed: Sequence[str]
    lost: Sequence[str]
    """Those of the removed items of whose contents no other item is left."""


def planned(
    job: JobRecord, wanted: Iterable[Row], gone: Collection[str], *, keeps_both: bool = True
) -> Plan:
    """Returns the plan for items of records that changed, and those that the source lacks.

    Only what goes is copied, unless it keeps a second copy of what stays.
    """
    copied: dict[str, tuple[Row, Row]] = {}
    changed, encoded = [], []
    for row in wanted:
        known = job.row(row.item_id)
        holders = job.holders(row.size, row.digest) if row.digest else []
        # If there is one that goes, it is renamed.
        renamed = [each for each in holders if each.item_id in gone]
        if known is not None and row.is_stored_as(known):
            changed.append((row, known))
        elif holders := renamed or (holders if keeps_both else []):
            copied[row.item_id] = row, holders[0]
        else:
            encoded.append(row)
    # A copy has its turn when no further one copies what it replaces.
    readers = Counter(old.item_id for _, old in copied.values())
    ready = [item_id for item_id in copied if not readers[item_id]]
    groups: list[list[tuple[Row, Row]]] = []
    while copied:
        if ready:
            groups.append([copied.pop(item_id) for item_id in ready])
            done_ids = [old.item_id for _, old in groups[-1]]
        else:
            # Of items that change places in a circle, one is encoded, after all copies.
            row, old = copied.pop(next(iter(copied)))
            encoded.append(row)
            done_ids = [old.item_id]
        readers.subtract(done_ids)
        ready = [each for each in dict.fromkeys(done_ids) if not readers[each] and each in copied]
    kept = {old.item_id for group in groups for _, old in group}
    for row in filter(None, map(job.row, gone)):
        # After a kill the copy may have been made.
        if any(each.item_id not in gone for each in job.holders(row.size, row.digest)):
            kept.add(row.item_id)
    return Plan(groups, changed, encoded, sorted(gone), sorted(set(gone) - kept))
