"""Makes searches by the names of emoji, with what a model and the words of the items find.

Shapes: Q queries, M items, D width.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt

from index_svc.keywords.item_text import ItemText
from index_svc.keywords.keyword_index import KeywordIndex
from orchestrator_svc.hit import Hit, KeywordHit, merge_keyword_hits
from tandem.contract.content import Modality
from tandem.corpus.emoji import Split, emoji_records
from tandem.corpus.records import Record
from tandem.evaluation.gallery import make_gallery
from tandem.evaluation.offline import OfflineGallery
from tandem.modeling.checkpoint import load_checkpoint

RETRIEVE_K = 100
# As many as the model reads.
KEYWORD_COUNT = 10


class Worded(StrEnum):
    """Which concepts have words that a search can find."""

    HALF = "half"
    ALL = "all"


@dataclass(frozen=True, slots=True, eq=False)
class KeywordTask:
    """Holds queries of one kind, the items that they search, and which of them are right."""

    name: str
    words: Sequence[str]
    queries: npt.NDArray[np.float32]
    """[Q, D]."""
    items: npt.NDArray[np.float32]
    """[M, D]."""
    keywords: Sequence[str]
    """Of each item."""
    query_concepts: Sequence[str]
    item_concepts: Sequence[str]

    def texts(self, worded: Worded) -> list[str]:
        """Returns the text of each item; empty for one without."""
        return [
            text if worded is Worded.ALL or zlib.crc32(concept.encode()) % 2 else ""
            for text, concept in zip(self.keywords, self.item_concepts, strict=True)
        ]

    def nearest(self) -> list[list[Hit]]:
        """Returns each query's nearest items, by number as their id."""
        found = []
        for query_D in self.queries:
            similarities_M = self.items @ query_D
            order = np.argsort(-similarities_M, kind="stable")[:RETRIEVE_K]
            found.append([Hit(f"{row:05}", float(similarities_M[row])) for row in order.tolist()])
        return found

    def by_words(self, worded: Worded, shard_count: int = 1) -> list[list[KeywordHit]]:
        """Returns what the words of each query find on shards with statistics of their own."""
        shards = [KeywordIndex() for _ in range(shard_count)]
        for row, text in enumerate(self.texts(worded)):
            item_id = f"{row:05}"
            shard = shards[zlib.crc32(item_id.encode()) % shard_count]
            shard.put([ItemText(item_id, Modality.IMAGE, text)])
        for shard in shards:
            shard.refresh()
        return [
            merge_keyword_hits((self._hits(shard, number) for shard in shards), RETRIEVE_K)
            for number in range(len(self.words))
        ]

    def ranks(self, found: Sequence[Sequence[Hit]]) -> list[int | None]:
        """Returns the rank of the first item of each query's concept, up to 10; else None."""
        ranks: list[int | None] = []
        for concept, hits in zip(self.query_concepts, found, strict=True):
            concepts = [self.item_concepts[int(hit.item_id)] for hit in hits[:10]]
            ranks.append(concepts.index(concept) + 1 if concept in concepts else None)
        return ranks

    def _hits(self, shard: KeywordIndex, number: int) -> list[KeywordHit]:
        query_D = self.queries[number]
        return [
            KeywordHit(Hit(hit.item_id, float(self.items[int(hit.item_id)] @ query_D)), hit.score)
            for hit in shard.search(self.words[number], Modality.IMAGE, RETRIEVE_K, lambda _: True)
        ]


def keyword_tasks(split: Split, checkpoint: Path, count: int | None = None) -> list[KeywordTask]:
    """Returns the three searches over the drawings of a split, or over its first `count`."""
    records = [_english(record) for record in emoji_records(split)]
    records = [record for record in records if len(record.captions) == 2][:count]
    encoded = OfflineGallery(load_checkpoint(checkpoint), make_gallery(records, ["en"], 2))
    images_ND = encoded.embeddings(Modality.IMAGE)
    texts_TD = encoded.embeddings(Modality.TEXT)
    names_ND, keywords_ND = texts_TD[0::2], texts_TD[1::2]
    keywords = [record.captions[1].text for record in records]
    concepts = [record.family for record in records]
    first = [concepts.index(concept) for concept in dict.fromkeys(concepts)]
    names = [records[row].captions[0].text for row in first]
    asked = [concepts[row] for row in first]
    drawn = KeywordTask(
        "name → drawings", names, names_ND[first], images_ND, keywords, asked, concepts
    )
    named = replace(
        drawn,
        name="name → texts",
        items=keywords_ND[first],
        keywords=[keywords[row] for row in first],
        item_concepts=asked,
    )
    shown = replace(named, name="drawing and name → texts", queries=images_ND[first])
    return [drawn, shown, named]


def _english(record: Record) -> Record:
    """Returns the record with its name and first keywords in English, in this order."""
    captions = tuple(
        replace(caption, text=", ".join(caption.text.split(", ")[:KEYWORD_COUNT]))
        for caption in record.captions
        if caption.language == "en"
    )
    return replace(record, captions=captions)
