"""Keeps the items of the fake in dictionaries, and ranks them."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

from tandem.client.testing.fake_hybrid import FakeHybrid, hybrid_of
from tandem.client.testing.fake_words import (
    content_words,
    item_words,
    match_logit,
    probability,
    similarity,
)
from tandem.contract.attribute_wire import attributes_from_proto, filter_from_proto
from tandem.contract.filter_expression import parse_filter
from tandem.contract.filters import Filter, holds
from tandem.contract.identifiers import check_index_id, check_item_id
from tandem.contract.limits import MAX_RERANK_K, MAX_RETRIEVE_K
from tandem.errors import (
    ContentMissing,
    IndexNotFound,
    ItemIdDuplicate,
    ItemNotFound,
    KOutOfRange,
    QueryInvalid,
    TandemError,
    TextEmpty,
)
from tandem.v1 import content_pb2, index_service_pb2
from tandem.v1 import search_service_pb2 as pb

TEXT, IMAGE = content_pb2.MODALITY_TEXT, content_pb2.MODALITY_IMAGE


class _Part(NamedTuple):
    """One part of a query."""

    modality: content_pb2.Modality
    words: frozenset[str]
    weight: float
    is_stored: bool = False


class FakeIndex:
    """All indexes of one fake; for calls from any thread."""

    def __init__(self) -> None:
        self._indexes: dict[str, dict[str, index_service_pb2.Item]] = {}
        self._lock = threading.RLock()

    def store(
        self, index_id: str, items: Sequence[index_service_pb2.Item]
    ) -> list[TandemError | None]:
        """Stores what can be stored, and returns each item's error."""
        check_index_id(index_id)
        counts = Counter(item.item_id for item in items)
        with self._lock:
            return [self._stored(index_id, item, counts[item.item_id]) for item in items]

    def remove(self, index_id: str, item_ids: Sequence[str]) -> int:
        """Removes the items that exist, and returns their number."""
        with self._lock:
            items = self._indexes.get(check_index_id(index_id), {})
            return sum(items.pop(item_id, None) is not None for item_id in item_ids)

    def remove_index(self, index_id: str) -> int:
        """Removes an index, and returns how many items it had; raises IndexNotFound."""
        with self._lock:
            count = len(self._items(index_id))
            del self._indexes[index_id]
            return count

    def item_count(self, index_id: str, modality: int | None) -> int:
        """Returns how many items of a modality, or of both, there are."""
        with self._lock:
            items = self._items(index_id).values()
            return sum(modality in (None, _modality(each)) for each in items)

    def index_ids(self) -> list[str]:
        """Returns the ids of the indexes, sorted."""
        with self._lock:
            return sorted(self._indexes)

    def contents(self, index_id: str) -> dict[str, index_service_pb2.Item]:
        """Returns the items by id; raises IndexNotFound."""
        with self._lock:
            return dict(self._items(index_id))

    def ranked(self, request: pb.SearchItemsRequest) -> tuple[list[pb.RankedItem], int, int | None]:
        """Returns the whole ranking, the target modality, and how many items were scored.

        The number is None if the cross-encoder reads no pair of the query and such items.

        Raises QueryInvalid, ItemNotFound, IndexNotFound, KOutOfRange, FilterInvalid and
        RankingInvalid.
        """
        retrieve_k = _count(request, "retrieve_k", 20, MAX_RETRIEVE_K)
        rerank_k = _count(request, "rerank_k", 20, MAX_RERANK_K)
        hybrid = hybrid_of(request)
        with self._lock:
            items = self._items(request.index_id)
            parts = self._parts(request, items)
            target = request.target_modality or _other_modality(parts)
            targets = [target]
            if request.all_modalities_included:
                targets.append(TEXT if target == IMAGE else IMAGE)
            wanted = _filter(request)
            lists = []
            scored_count = 0
            for modality in targets:
                found = [
                    each
                    for each in items.values()
                    if _modality(each) == modality
                    and (wanted is None or holds(wanted, attributes_from_proto(each.attributes)))
                ]
                depth = 0 if request.rerank_disabled else rerank_k
                ranked, count = _rank(parts, found, (retrieve_k, depth), hybrid)
                lists.append(ranked)
                scored_count += count
        merged = [each for each in chain.from_iterable(zip_longest(*lists)) if each is not None]
        if request.HasField("min_probability"):
            least = request.min_probability
            merged = [
                each
                for each in merged
                if each.HasField("match_probability") and each.match_probability >= least
            ]
        for rank, each in enumerate(merged, start=1):
            each.final_rank = rank
        is_read = any(part.modality != modality for part in parts for modality in targets)
        return merged, target, scored_count if is_read else None

    def _stored(
        self, index_id: str, item: index_service_pb2.Item, count: int
    ) -> TandemError | None:
        try:
            check_item_id(item.item_id)
            if count > 1:
                raise ItemIdDuplicate(item_id=item.item_id)
            check_content(item.content)
        except TandemError as error:
            return error
        kept = index_service_pb2.Item()
        kept.CopyFrom(item)
        self._indexes.setdefault(index_id, {})[item.item_id] = kept
        return None

    def _items(self, index_id: str) -> dict[str, index_service_pb2.Item]:
        if check_index_id(index_id) not in self._indexes:
            raise IndexNotFound(index_id=index_id)
        return self._indexes[index_id]

    def _parts(
        self, request: pb.SearchItemsRequest, items: dict[str, index_service_pb2.Item]
    ) -> list[_Part]:
        if request.HasField("query"):
            if request.query_parts:
                raise QueryInvalid(why="it has query and query_parts; send one of them")
            check_content(request.query)
            return [_Part(modality_of(request.query), content_words(request.query), 1.0)]
        if not request.query_parts:
            raise QueryInvalid(why="there is none; send a text, an image or an item id")
        return [_part(part, items) for part in request.query_parts]


def check_content(content: content_pb2.Content) -> None:
    """Raises ContentMissing or TextEmpty."""
    kind = content.WhichOneof("data")
    if kind is None:
        raise ContentMissing
    if kind == "text" and not content.text.strip():
        raise TextEmpty


def modality_of(content: content_pb2.Content) -> content_pb2.Modality:
    """Returns the modality of a content."""
    return TEXT if content.WhichOneof("data") == "text" else IMAGE


def _part(part: pb.QueryPart, items: dict[str, index_service_pb2.Item]) -> _Part:
    weight = part.weight if part.HasField("weight") else 1.0
    match part.WhichOneof("source"):
        case "content":
            check_content(part.content)
            return _Part(modality_of(part.content), content_words(part.content), weight)
        case "item_id":
            if part.item_id not in items:
                raise ItemNotFound(item_id=part.item_id)
            item = items[part.item_id]
            return _Part(_modality(item), item_words(item), weight, is_stored=True)
        case _:
            raise QueryInvalid(why="the fake of tandem.client.testing has no model for encodings")


def _rank(
    parts: Sequence[_Part],
    items: Sequence[index_service_pb2.Item],
    depths: tuple[int, int],
    hybrid: FakeHybrid | None,
) -> tuple[list[pb.RankedItem], int]:
    """Returns the first by similarity, the scored ones first, and how many are scored."""
    retrieve_k, rerank_k = depths
    total = sum(abs(part.weight) for part in parts) or 1.0
    hits = []
    for item in items:
        words = item_words(item)
        sums = sum(part.weight * similarity(part.words, words) for part in parts)
        hits.append((sums / total, item, words))
    hits.sort(key=lambda hit: (-hit[0], hit[1].item_id))
    near_ids = [item.item_id for _, item, _ in hits[:retrieve_k]]
    ranks = hybrid.ranks(near_ids, items, retrieve_k) if hybrid else {}
    hit_of = {hit[1].item_id: hit for hit in hits}
    ranked = []
    for rank, item_id in enumerate(ranks if hybrid else near_ids, start=1):
        near, item, words = hit_of[item_id]
        modality = _modality(item)
        found = pb.RankedItem(
            item_id=item.item_id, similarity=near, retrieve_rank=rank, modality=modality, score=near
        )
        if item_id in ranks:
            found.hybrid.CopyFrom(ranks[item_id])
            found.score = found.hybrid.fused_score
        read = [part for part in parts if part.modality != modality]
        if read and rank <= rerank_k:
            logit = match_logit(max(read, key=lambda part: part.weight).words, words)
            found.match_logit = found.score = logit
            found.match_probability = probability(logit)
        is_read = found.HasField("match_logit")
        found.ordered_by = pb.ORDERING_STAGE_RERANK if is_read else pb.ORDERING_STAGE_RETRIEVE
        ranked.append(found)
    # A stable sort: ties and unscored items keep their order.
    ranked.sort(key=lambda each: -each.score if each.HasField("match_logit") else math.inf)
    return ranked, sum(each.HasField("match_logit") for each in ranked)


def _other_modality(parts: Sequence[_Part]) -> int:
    modalities = {part.modality for part in parts if not part.is_stored}
    if len(modalities) != 1:
        raise QueryInvalid(why="target_modality must be set for items, or for both modalities")
    return TEXT if modalities == {IMAGE} else IMAGE


def _filter(request: pb.SearchItemsRequest) -> Filter | None:
    if request.HasField("filter"):
        return filter_from_proto(request.filter)
    return parse_filter(request.filter_text) if request.filter_text else None


def _count(request: pb.SearchItemsRequest, name: str, default: int, most: int) -> int:
    if not request.HasField(name):
        return default
    value: int = getattr(request, name)
    if not 1 <= value <= most:
        raise KOutOfRange(name=name, got=value, low=1, high=most)
    return value


def _modality(item: index_service_pb2.Item) -> content_pb2.Modality:
    return modality_of(item.content)
