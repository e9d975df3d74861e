"""Makes records of any corpus a source of pairs."""

import random
from collections import defaultdict
from collections.abc import Sequence

from tandem.corpus.readable_records import RecordFault, RecordUnreadable
from tandem.corpus.records import Record
from tandem.lab.training.data.caption_groups import caption_groups


class RecordPairs:
    """Treats a caption as possibly true of every sibling.

    Families are the corpus' own; two that share a caption become one, so that their pictures are
    never negatives of each other.
    """

    siblings_mismatch = False

    def __init__(self, records: Sequence[Record]) -> None:
        self._captions = [tuple(caption.text for caption in each.captions) for each in records]
        for record, captions in zip(records, self._captions, strict=True):
            if not captions:
                raise RecordUnreadable(record, RecordFault.CAPTION_EMPTY, "it has none; write one")
        corpus_families: dict[str, list[int]] = defaultdict(list)
        for number, record in enumerate(records):
            corpus_families[record.family].append(number)
        members: dict[int, list[int]] = defaultdict(list)
        for number, group in enumerate(caption_groups(self._captions, corpus_families.values())):
            members[group].append(number)
        self.families: Sequence[Sequence[int]] = list(members.values())

    def captions(self, number: int) -> Sequence[str]:
        return self._captions[number]

    def caption(self, number: int, rng: random.Random) -> str:
        return rng.choice(self._captions[number])
