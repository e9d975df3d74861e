"""Calls index_svc with our own types; protobuf ends here."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

import grpc

from tandem.contract.attribute_wire import (
    attributes_from_proto,
)
from tandem.contract.content import Encoding, content_bytes
from tandem.contract.deadline import Deadline
from tandem.contract.index_description import (
    IndexSummary,
    ShardIndex,
    parts_from_proto,
    summary_from_proto,
)
from tandem.contract.limits import MAX_ITEM_ID_COUNT
from tandem.contract.search_path import KeywordState
from tandem.errors import InternalFault
from tandem.remote.rerank_client import RerankClient
from tandem.search.calls.breaker import BREAKER_RULE, BreakerRule
from tandem.search.calls.call_policy import Dependency
from tandem.search.calls.item_reader import FetchedItem
from tandem.search.calls.retry_budget import RetryBudget
from tandem.search.contents.content_room import Taking
from tandem.stages.items import Deleted, ItemRecord
from tandem.stages.neighbours import ShardNeighbourQuery, ShardNeighbours
from tandem.stages.retrieval import ShardDescription, ShardHits, ShardQuery
from tandem.stages.shard_answer import ShardAnswer, hits_of_searches
from tandem.v1 import index_service_pb2, index_service_pb2_grpc
from tandem.wire import (
    content_from_proto,
    embedding_from_proto,
    tokens_from_proto,
)
from tandem.wire.items import upsert_to_proto
from tandem.wire.neighbours import neighbour_query_to_proto, neighbours_from_proto
from tandem.wire.retrieval import answer_from_proto, query_to_proto

# Most answers' contents are small, and memory is reserved before their size is known.
_FIRST_GET_BYTES = 2 * 2**20
_FURTHER_GET_BYTES = 8 * 2**20


class ShardClient:
    """Calls one shard's index_svc; `reranker` calls the shard's rerank_svc."""

    def __init__(
        self,
        index_channel: grpc.aio.Channel,
        rerank_channel: grpc.aio.Channel,
        number: int,
        shard_map_version: int = 1,
        retry_budget: RetryBudget | None = None,
        breaker_rule: BreakerRule = BREAKER_RULE,
    ) -> None:
        """Sends `shard_map_version`; a shard refuses calls by another version than its own."""
        self.reranker = RerankClient(rerank_channel, number, retry_budget, breaker_rule)
        self._index = index_service_pb2_grpc.IndexServiceStub(index_channel)
        self._index_name = f"index-{number}"
        self._dependency = Dependency(self._index_name, retry_budget, breaker_rule)
        # Of its own: a search needs the index and not the neighbours.
        self._neighbour_dependency = Dependency(f"neighbours-{number}", retry_budget, breaker_rule)
        self._description_dependency = Dependency(
            f"description-{number}", retry_budget, breaker_rule
        )
        self._number = number
        self._shard_map_version = shard_map_version

    async def search(self, query: ShardQuery, deadline: Deadline) -> ShardHits:
        """Returns the items nearest to any of its embeddings, best first, as `search_each` does."""
        [hits] = await self.search_each([query], deadline)
        return hits

    async def search_each(
        self, queries: Sequence[ShardQuery], deadline: Deadline
    ) -> list[ShardHits]:
        """Returns, for each of equal queries, the items nearest to any of its embeddings.

        An item appears once a query. Takes at most MAX_EMBEDDING_COUNT embeddings in all. Raises
        SequenceNotReached if the shard does not apply `minimum_sequence` in time.
        """
        [query, *further] = queries
        if further:
            query = replace(query, embeddings=[e for each in queries for e in each.embeddings])
        answer = await self._search(query, deadline)
        return hits_of_searches(answer, query, [len(each.embeddings) for each in queries])

    async def _search(self, query: ShardQuery, deadline: Deadline) -> ShardAnswer:
        request = query_to_proto(query, self._shard_map_version)
        response: index_service_pb2.SearchEmbeddingsResponse = await self._dependency.call(
            self._index.SearchEmbeddings, request, deadline
        )
        return answer_from_proto(response, query, self._index_name)

    def note_late(self, waited_seconds: float) -> None:
        """Notes that a search of the shard was abandoned after that time."""
        self._dependency.note_late(waited_seconds)

    async def find_neighbours(
        self, query: ShardNeighbourQuery, deadline: Deadline
    ) -> ShardNeighbours:
        """Returns the neighbours of the query and its candidates among the shard's items.

        Raises InternalFault if the answer does not cover each of them.
        """
        response: index_service_pb2.FindNeighboursResponse = await self._neighbour_dependency.call(
            self._index.FindNeighbours,
            neighbour_query_to_proto(query, self._shard_map_version),
            deadline,
        )
        return neighbours_from_proto(response, query, self._index_name)

    async def get(
        self, index_id: str, item_ids: Sequence[str], deadline: Deadline, taking: Taking
    ) -> Mapping[str, FetchedItem]:
        """Returns items by their ids, without those that no longer exist.

        `taking` accounts for their bytes; its errors end the read.
        """
        fetched: dict[str, FetchedItem] = {}
        async for response, reserved_bytes in self._get_each(index_id, item_ids, deadline, taking):
            items = {item.item_id: _fetched_item(item) for item in response.items}
            taking.take(sum(item.size_bytes for item in items.values()), reserved_bytes)
            fetched |= items
        return fetched

    async def get_encodings(
        self, index_id: str, item_ids: Sequence[str], deadline: Deadline
    ) -> tuple[Mapping[str, Encoding], str]:
        """Returns the existing items' encodings by id, and the fingerprint."""
        encodings: dict[str, Encoding] = {}
        fingerprint = ""
        async for response, _ in self._get_each(
            index_id, item_ids, deadline, None, are_encodings_included=True
        ):
            if response.items:
                raise InternalFault(
                    why="a shard of an earlier version gives no encodings; update it"
                )
            encodings |= {
                item.item_id: Encoding(
                    embedding_from_proto(item.embedding),
                    tokens_from_proto(item.tokens, may_be_empty=True),
                )
                for item in response.encoded_items
            }
            fingerprint = response.model_fingerprint
        return encodings, fingerprint

    async def upsert(
        self,
        index_id: str,
        fingerprint: str,
        items: Sequence[ItemRecord],
        request_id: str,
        deadline: Deadline,
    ) -> int:
        """Stores the items, all or none, durable and searchable; returns the change log's sequence.

        A repeated `request_id` gets the first answer again; an empty one is not remembered.
        """
        response: index_service_pb2.UpsertItemsResponse = await self._dependency.call_once(
            self._index.UpsertItems,
            upsert_to_proto(index_id, fingerprint, items, request_id, self._shard_map_version),
            deadline,
        )
        return response.sequence

    async def delete(
        self, index_id: str, item_ids: Sequence[str], request_id: str, deadline: Deadline
    ) -> Deleted:
        """Deletes the items, all or none; `request_id` as for `upsert`."""
        response: index_service_pb2.DeleteItemsResponse = await self._dependency.call_once(
            self._index.DeleteItems,
            index_service_pb2.DeleteItemsRequest(
                index_id=index_id,
                item_ids=item_ids,
                request_id=request_id,
                shard_map_version=self._shard_map_version,
            ),
            deadline,
        )
        return Deleted(response.deleted_count, response.sequence)

    async def delete_index(self, index_id: str, deadline: Deadline) -> Deleted:
        """Deletes the index, or a part of a large one, as `is_complete` says."""
        response: index_service_pb2.DeleteIndexResponse = await self._dependency.call_once(
            self._index.DeleteIndex,
            index_service_pb2.DeleteIndexRequest(
                index_id=index_id, shard_map_version=self._shard_map_version
            ),
            deadline,
        )
        return Deleted(response.deleted_count, response.sequence, response.is_complete)

    async def list_item_ids(
        self, index_id: str, after: str, max_count: int, deadline: Deadline
    ) -> Sequence[str]:
        """Returns ids after that one, in byte order; raises IndexNotFound."""
        response: index_service_pb2.ListItemIdsResponse = await self._dependency.call(
            self._index.ListItemIds,
            index_service_pb2.ListItemIdsRequest(
                index_id=index_id, after=after, max_count=max_count
            ),
            deadline,
        )
        return response.item_ids

    async def describe_index(self, index_id: str, deadline: Deadline) -> ShardDescription:
        """Returns the state of the index; raises IndexNotFound.

        A shard of an earlier version raises InternalFault.
        """
        response: index_service_pb2.DescribeShardIndexResponse = (
            await self._description_dependency.call(
                self._index.DescribeShardIndex,
                index_service_pb2.DescribeShardIndexRequest(
                    index_id=index_id, shard_map_version=self._shard_map_version
                ),
                deadline,
            )
        )
        return ShardDescription(
            response.model_fingerprint,
            response.embedding_dimension,
            ShardIndex(
                self._number,
                parts_from_proto(response.parts),
                KeywordState(response.keyword_state),
            ),
        )

    async def list_indexes(
        self, after: str, max_count: int, index_ids: Sequence[str], deadline: Deadline
    ) -> Sequence[IndexSummary]:
        """Returns the indexes after that id, in byte order; only of `index_ids` if there are.

        A shard of an earlier version raises InternalFault.
        """
        response: index_service_pb2.ListShardIndexesResponse = (
            await self._description_dependency.call(
                self._index.ListShardIndexes,
                index_service_pb2.ListShardIndexesRequest(
                    after=after, max_count=max_count, index_ids=index_ids
                ),
                deadline,
            )
        )
        return list(map(summary_from_proto, response.indexes))

    async def _get_each(
        self,
        index_id: str,
        item_ids: Sequence[str],
        deadline: Deadline,
        taking: Taking | None,
        *,
        are_encodings_included: bool = False,
    ) -> AsyncIterator[tuple[index_service_pb2.GetItemsResponse, int]]:
        """Yields responses until they cover all items; the shard decides how many fit in each.

        With each comes how many bytes `taking` reserved for it.
        """
        left = list(item_ids)
        is_bare = taking is not None and not taking.content_included
        max_bytes = _FIRST_GET_BYTES
        while left:
            batch_ids = left[:MAX_ITEM_ID_COUNT]
            if taking is not None:
                await taking.reserve(max_bytes)
            response: index_service_pb2.GetItemsResponse = await self._dependency.call(
                self._index.GetItems,
                index_service_pb2.GetItemsRequest(
                    index_id=index_id,
                    item_ids=batch_ids,
                    encodings_included=are_encodings_included,
                    # The shard counts the records that it reads, and not what it sends of them.
                    max_bytes=0 if is_bare else max_bytes,
                    content_excluded=is_bare,
                ),
                deadline,
            )
            # A shard of an earlier version answers all or fails.
            read_count = response.read_count if response.HasField("read_count") else len(batch_ids)
            if not 1 <= read_count <= len(batch_ids):
                raise InternalFault(
                    why=f"{self._index_name} read {read_count} of {len(batch_ids)} items"
                )
            yield response, max_bytes
            del left[:read_count]
            max_bytes = _FURTHER_GET_BYTES


def _fetched_item(item: index_service_pb2.Item) -> FetchedItem:
    content = content_from_proto(item.content) if item.HasField("content") else None
    size_bytes = 0 if content is None else len(content_bytes(content))
    # ByteSize() copies what it measures.
    item.ClearField("content")
    return FetchedItem(
        content, attributes_from_proto(item.attributes), size_bytes + item.ByteSize()
    )
