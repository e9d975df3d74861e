"""A SearchService for the console: scenes in two orders, of which the second can be held back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from google.protobuf.duration_pb2 import Duration

from tandem.contract.filtering.attribute_wire import attributes_to_proto
from tandem.corpus.scenes.records import scene_records
from tandem.errors import TandemError
from tandem.v1 import content_pb2, index_service_pb2
from tandem.v1 import search_service_pb2 as pb

_RECORDS = list(scene_records("test", 1, 8))

# The final order, by places in the first one.
_FINAL = (4, 0, 1, 3, 2, 5, 6, 7)


def held_items(text_count: int = 0) -> dict[str, index_service_pb2.Item]:
    """Returns scenes by id, with attributes, and as many texts after them."""
    items = [
        index_service_pb2.Item(
            item_id=record.record_id,
            content=content_pb2.Content(image=record.image.read()),
            attributes=attributes_to_proto(record.attributes | {"file": f"{record.record_id}.png"}),
        )
        for record in scene_records("test", 1, 40)
    ]
    items += [
        index_service_pb2.Item(
            item_id=f"text-{number:04d}", content=content_pb2.Content(text="<b>two dogs</b>")
        )
        for number in range(text_count)
    ]
    return {each.item_id: each for each in items}


class ToldAnswers:
    """Answers every stream with the same two orders, or fails."""

    def __init__(self, *, error: TandemError | None = None, **final: Any) -> None:
        self.error = error
        self.may_end = asyncio.Event()
        self.may_end.set()
        self._final = final
        self._is_second = False

    async def search(self, request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        """Answers the first phase, then the second."""
        if self.error is not None:
            raise self.error
        is_final, self._is_second = self._is_second, not self._is_second
        if not is_final:
            return pb.SearchItemsResponse(items=[found(place, place + 1) for place in range(8)])
        await self.may_end.wait()
        return final_answer(**self._final)


def final_answer(
    items: Sequence[pb.RankedItem] | None = None,
    degradations: Sequence[pb.Degradation] = (),
    coverage: pb.Coverage | None = None,
    rerank: pb.RerankSummary | None = None,
    keyword_state: index_service_pb2.KeywordState | None = None,
) -> pb.SearchItemsResponse:
    """Returns the scenes in their final order."""
    ranked = items
    if ranked is None:
        ranked = [
            found(place, rank, logit=3.5 - 1.5 * rank) for rank, place in enumerate(_FINAL, 1)
        ]
    return pb.SearchItemsResponse(
        items=ranked,
        degradations=degradations,
        coverage=coverage
        or pb.Coverage(
            answered_shard_count=2, shard_count=2, covered_item_count=1200, item_count=1200
        ),
        rerank=rerank or pb.RerankSummary(reranked_depth=8, stop=pb.RERANK_STOP_COMPLETE),
        durations=pb.StageDurations(
            encode_duration=_ms(12),
            retrieve_duration=_ms(4),
            rerank_duration=_ms(61),
            rank_duration=_ms(1),
            fetch_duration=_ms(3),
            total_duration=_ms(81),
        ),
        retrievals=[
            pb.ShardRetrieval(
                shard_number=each,
                item_count=600,
                keyword_state=keyword_state,
                modality=content_pb2.MODALITY_IMAGE,
                path=index_service_pb2.SearchPath(
                    strategy=index_service_pb2.SEARCH_STRATEGY_EXACT_SCAN, device="cpu"
                ),
            )
            for each in range(2)
        ],
    )


def found(place: int, final_rank: int, logit: float | None = None) -> pb.RankedItem:
    """Returns one scene, retrieved at `place` (from 0)."""
    record = _RECORDS[place]
    item = pb.RankedItem(
        item_id=record.record_id,
        similarity=0.5 - 0.02 * place,
        retrieve_rank=place + 1,
        final_rank=final_rank,
        modality=content_pb2.MODALITY_IMAGE,
        content=content_pb2.Content(image=record.image.read()),
        score=logit or 0.0,
    )
    if logit is not None:
        item.match_logit = logit
        item.match_probability = 1 / (1 + 2.718281828**-logit)
        item.explanation.terms.add(name="match_logit", value=logit, weight=1.0)
        item.explanation.ranks.add(stage="retrieve", rank=place + 1)
        item.explanation.ranks.add(stage="rerank", rank=final_rank)
    return item


def item_id(place: int) -> str:
    """Returns the id of the scene that is retrieved at `place` (from 0)."""
    return _RECORDS[place].record_id


def _ms(count: int) -> Duration:
    return Duration(nanos=count * 1_000_000)
