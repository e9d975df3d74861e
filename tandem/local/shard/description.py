"""Describes an index of a shard to its callers."""

from collections.abc import Collection

from tandem.contract.content import Modality
from tandem.contract.index_description import DirectionRecall, IndexPart, IndexSummary
from tandem.local.shard.retrieval.modality_index import ModalityIndex
from tandem.local.shard.shard import StoredShard
from tandem.local.shard.upkeep.live_recall import DIRECTIONS


def index_parts(shard: StoredShard, index_id: str) -> list[IndexPart]:
    """Returns the texts and the images of the index; raises IndexNotFound."""
    index = shard.index(index_id)
    recalls = _recalls(shard, index_id)
    with index.reading():
        return [
            _part(shard, index_id, index.part(modality), modality, recalls) for modality in Modality
        ]


def index_summaries(
    shard: StoredShard, after: str, count: int, among: Collection[str]
) -> list[IndexSummary]:
    """Returns the indexes after that id, in byte order; only some if `among` is not empty."""
    indexes = shard.indexes()
    found = sorted(each for each in (among or indexes) if each in indexes and each > after)
    return [
        IndexSummary(
            each,
            indexes[each].info.fingerprint,
            indexes[each].item_count(Modality.TEXT),
            indexes[each].item_count(Modality.IMAGE),
        )
        for each in found[:count]
    ]


def _part(
    shard: StoredShard,
    index_id: str,
    part: ModalityIndex,
    modality: Modality,
    recalls: list[DirectionRecall],
) -> IndexPart:
    faiss_index = part.faiss_index
    return IndexPart(
        modality=modality,
        item_count=len(part),
        dead_row_count=part.rows.dead_count,
        tail_row_count=part.tail_count,
        index_type=part.index_type,
        parameters={} if faiss_index is None else faiss_index.parameters,
        device="cpu" if faiss_index is None else faiss_index.device,
        fallback=part.fallback,
        activity=shard.maintenance.activity(index_id, modality),
        index_bytes=0 if faiss_index is None else faiss_index.size_bytes(),
        recall_target=shard.tunings.get(index_id, modality).recall_target,
        built_recall=None if part.recall_percent is None else part.recall_percent / 100,
        list_imbalance=None if faiss_index is None else faiss_index.list_imbalance(),
        live_recalls=[each for each in recalls if each.target_modality is modality],
    )


def _recalls(shard: StoredShard, index_id: str) -> list[DirectionRecall]:
    measured = shard.live_recall.recall(index_id)
    directions = ((query, target) for query in Modality for target in Modality)
    return [
        DirectionRecall(*direction, *measured[name])
        for name, direction in zip(DIRECTIONS, directions, strict=True)
        if name in measured
    ]
