"""Measures hybrid searches of keyword queries: the names of emoji.

    python -m benchmarks.bench.hybrid

The words of an item are its keywords in English, never its name. Three searches, by the bundled
model's embeddings, by BM25, and by the three fusions: a name finds drawings, a name finds the texts
of keywords, and a drawing together with its name finds these texts. Half of the items have no
words, so that neither list has everything. Shards are made of the same items by a hash.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from index_svc.keywords.item_text import ItemText
from index_svc.keywords.keyword_index import KeywordIndex
from orchestrator_svc.hit import Hit, KeywordHit, merge_keyword_hits
from orchestrator_svc.query import HybridRule
from orchestrator_svc.ranking.hybrid_fusion import fused_hits
from tandem.contract.content import Modality
from tandem.contract.hybrid import HybridFusion
from tandem.corpus.emoji import Split, emoji_records
from tandem.corpus.records import Record
from tandem.demo_files import demo_folder
from tandem.evaluation.gallery import make_gallery
from tandem.evaluation.offline import OfflineGallery
from tandem.modeling.checkpoint import load_checkpoint

RETRIEVE_K = 100
# As many as the model reads.
KEYWORD_COUNT = 10
SHARD_COUNTS = (1, 2, 4, 8)
SPLITS: tuple[Split, ...] = ("test", "test_style")


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Holds queries of one kind, the items that they search, and which of them are right."""

    name: str
    words: Sequence[str]
    queries: npt.NDArray[np.float32]
    """[Q, d]."""
    items: npt.NDArray[np.float32]
    """[M, d]."""
    texts: Sequence[str]
    """The words of each item; empty for one without."""
    query_families: Sequence[str]
    item_families: Sequence[str]


def english(record: Record) -> Record:
    """Returns the record with its name and first keywords in English, in this order."""
    captions = tuple(
        replace(caption, text=", ".join(caption.text.split(", ")[:KEYWORD_COUNT]))
        for caption in record.captions
        if caption.language == "en"
    )
    return replace(record, captions=captions)


def tasks(split: Split, count: int | None = None) -> list[Task]:
    """Returns the three searches over the drawings of a split, or its first `count`."""
    records = [english(record) for record in emoji_records(split)]
    records = [record for record in records if len(record.captions) == 2][:count]
    checkpoint = load_checkpoint(demo_folder("modeling/checkpoints/default", "the demo's model"))
    encoded = OfflineGallery(checkpoint, make_gallery(records, ["en"], 2))
    images_ND = encoded.embeddings(Modality.IMAGE)
    texts_TD = encoded.embeddings(Modality.TEXT)
    names_ND, keywords_ND = texts_TD[0::2], texts_TD[1::2]
    names = [record.captions[0].text for record in records]
    keywords = [record.captions[1].text for record in records]
    families = [record.family for record in records]
    first = [families.index(family) for family in dict.fromkeys(families)]

    def of(values: Sequence[str]) -> list[str]:
        return [values[number] for number in first]

    def halved(texts: Sequence[str], ids: Sequence[str]) -> list[str]:
        return [
            text if zlib.crc32(name.encode()) % 2 else ""
            for text, name in zip(texts, ids, strict=True)
        ]

    concepts = of(families)
    return [
        Task(
            "name -> drawings",
            of(names),
            names_ND[first],
            images_ND,
            halved(keywords, families),
            concepts,
            families,
        ),
        Task(
            "name -> texts",
            of(names),
            names_ND[first],
            keywords_ND[first],
            halved(of(keywords), concepts),
            concepts,
            concepts,
        ),
        Task(
            "drawing and name -> texts",
            of(names),
            images_ND[first],
            keywords_ND[first],
            halved(of(keywords), concepts),
            concepts,
            concepts,
        ),
    ]


def nearest(task: Task, number: int) -> list[Hit]:
    """Returns the nearest items, by number as their id."""
    similarities_M = task.items @ task.queries[number]
    order = np.argsort(-similarities_M, kind="stable")[:RETRIEVE_K]
    return [Hit(f"{place:05}", float(similarities_M[place])) for place in order.tolist()]


def by_words(task: Task, shard_count: int) -> list[list[KeywordHit]]:
    """Returns what the words of each query find on shards with statistics of their own."""
    shards = [KeywordIndex() for _ in range(shard_count)]
    for place, text in enumerate(task.texts):
        item_id = f"{place:05}"
        shards[zlib.crc32(item_id.encode()) % shard_count].put(
            [ItemText(item_id, Modality.IMAGE, text)]
        )
    for shard in shards:
        shard.refresh()
    return [
        merge_keyword_hits(
            (
                [
                    KeywordHit(
                        Hit(
                            hit.item_id,
                            float(task.items[int(hit.item_id)] @ task.queries[number]),
                        ),
                        hit.score,
                    )
                    for hit in shard.search(words, Modality.IMAGE, RETRIEVE_K, lambda _: True)
                ]
                for shard in shards
            ),
            RETRIEVE_K,
        )
        for number, words in enumerate(task.words)
    ]


def recalls(task: Task, found: Sequence[Sequence[str]]) -> str:
    """Returns R@1 and R@10 in percent: whether one of the query's concept is among the first."""
    families = [
        [task.item_families[int(item_id)] for item_id in item_ids[:10]] for item_ids in found
    ]
    asked = list(zip(task.query_families, families, strict=True))
    at_1 = np.mean([family in each[:1] for family, each in asked])
    at_10 = np.mean([family in each for family, each in asked])
    return f"{100 * at_1:.1f} | {100 * at_10:.1f}"


def rows(task: Task) -> Mapping[str, str]:
    """Returns the recalls of each way to search."""
    near = [nearest(task, number) for number in range(len(task.words))]
    worded = by_words(task, 1)
    found = {
        "embeddings": recalls(task, [[hit.item_id for hit in hits] for hits in near]),
        "BM25": recalls(task, [[each.hit.item_id for each in hits] for hits in worded]),
    }
    for fusion in HybridFusion:
        rule = HybridRule(keywords="-", fusion=fusion)
        fused = [fused_hits(*lists, rule, RETRIEVE_K) for lists in zip(near, worded, strict=True)]
        found[fusion.value] = recalls(task, [[hit.item_id for hit in hits] for hits in fused])
    for shard_count in SHARD_COUNTS[1:]:
        apart = by_words(task, shard_count)
        found[f"BM25, {shard_count} shards"] = recalls(
            task, [[each.hit.item_id for each in hits] for hits in apart]
        )
    return found


def main() -> None:
    """Prints a table for each search."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--splits", nargs="+", choices=SPLITS, default=SPLITS)
    parser.add_argument("--count", type=int, help="drawings of a split; by default all")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for split, task in (
        (each, task) for each in options.splits for task in tasks(each, options.count)
    ):
        print(f"\n### {split}: {task.name}\n")
        print(f"{len(task.words)} queries, {len(task.texts)} items\n")
        print("| | R@1 | R@10 |\n| --- | --- | --- |")
        for name, recall in rows(task).items():
            print(f"| {name} | {recall} |")


if __name__ == "__main__":
    main()
