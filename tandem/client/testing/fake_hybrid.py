"""Fuses the items that words name with the nearest ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tandem.client.testing.fake_words import keyword_words, words_of
from tandem.contract.limits import MAX_KEYWORDS_BYTES
from tandem.errors import QueryInvalid, RankingInvalid
from tandem.v1 import index_service_pb2
from tandem.v1 import search_service_pb2 as pb

_RANK_CONSTANT = 60


class FakeHybrid(NamedTuple):
    """The words of a hybrid search, and their weight."""

    words: frozenset[str]
    weight: float

    def ranks(
        self, near_ids: Sequence[str], items: Sequence[index_service_pb2.Item], count: int
    ) -> dict[str, pb.HybridRank]:
        """Returns the best of both lists, fused by reciprocal rank whatever fusion is requested."""
        scores = {item.item_id: len(self.words & keyword_words(item)) for item in items}
        worded = sorted(filter(scores.get, scores), key=lambda each: (-scores[each], each))
        ranks = {each: pb.HybridRank() for each in (*near_ids, *worded[:count])}
        for rank, item_id in enumerate(near_ids, start=1):
            ranks[item_id].similarity_rank = rank
            ranks[item_id].fused_score += (1.0 - self.weight) / (_RANK_CONSTANT + rank)
        for rank, item_id in enumerate(worded[:count], start=1):
            ranks[item_id].keyword_rank = rank
            ranks[item_id].keyword_score = scores[item_id]
            ranks[item_id].fused_score += self.weight / (_RANK_CONSTANT + rank)
        ordered = sorted(ranks, key=lambda each: (-ranks[each].fused_score, each))
        return {each: ranks[each] for each in ordered[:count]}


def hybrid_of(request: pb.SearchItemsRequest) -> FakeHybrid | None:
    """Returns the requested hybrid search, or None; raises RankingInvalid and QueryInvalid."""
    if not request.HasField("hybrid"):
        return None
    hybrid = request.hybrid
    if request.adaptive_depth:
        raise RankingInvalid(why="adaptive_depth cannot be used with hybrid; drop one")
    if len(hybrid.keywords.encode()) > MAX_KEYWORDS_BYTES:
        raise QueryInvalid(why=f"keywords have more than {MAX_KEYWORDS_BYTES:,} bytes")
    texts = [request.query.text] + [
        part.content.text
        for part in request.query_parts
        if part.weight > 0 or not part.HasField("weight")
    ]
    keywords = hybrid.keywords or " ".join(filter(None, texts))
    if not keywords:
        raise QueryInvalid(
            why="hybrid needs keywords, since no part of the query is a text; send some"
        )
    weight = hybrid.keyword_weight if hybrid.HasField("keyword_weight") else 0.5
    if not 0.0 <= weight <= 1.0:
        raise RankingInvalid(why=f"keyword_weight is {weight}; send 0 to 1")
    return FakeHybrid(words_of(keywords), weight)
