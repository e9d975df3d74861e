"""Holds what shards in outside engines have in common."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from tandem.contract.content import Modality
from tandem.contract.deadline import Deadline
from tandem.contract.identifiers import check_index_id
from tandem.contract.index_description import IndexPart
from tandem.contract.search_path import KeywordState
from tandem.local.shard.metrics import STAGE_DURATION
from tandem.stages.index_info import IndexInfo
from tandem.stages.neighbours import ModalityNeighbours, ShardNeighbourQuery, ShardNeighbours
from tandem.stages.retrieval import Embeddings, ShardDescription, ShardQuery
from tandem.stages.shard import FollowedShard
from tandem.stages.shard_answer import Found


class EngineShard(FollowedShard):
    """A shard in an outside engine, over connections of this process."""

    index_type: ClassVar[str]
    """By which the engine searches."""

    @abstractmethod
    async def open(self) -> None:
        """Connects, and makes the namespace where there was none.

        Raises ServiceUnavailable, with the engine's reason, until it succeeds, and StoreRefused
        where a namespace is another shard's or of another version.
        """

    @abstractmethod
    async def check(self) -> None:
        """Raises ServiceUnavailable, with the engine's reason, while it does not answer."""

    @abstractmethod
    async def close(self) -> None:
        """Closes the connections; no call may be in flight."""

    async def find_neighbours(
        self, query: ShardNeighbourQuery, deadline: Deadline
    ) -> ShardNeighbours:
        """Returns the neighbours among the items nearest to the query and to each candidate."""

        async def near(modality: Modality, embeddings: Embeddings, count: int) -> Sequence[Found]:
            asked = ShardQuery(
                query.index_id,
                query.fingerprint,
                modality,
                modality,
                count,
                embeddings,
                embeddings_included=True,
            )
            return (await self.search(asked, deadline)).found

        neighbours = {}
        with STAGE_DURATION.labels("neighbours").time():
            for modality in Modality:
                [pool] = await near(modality, [query.query_D], query.pool_k)
                found = [pool]
                if len(query.nodes) > 1 and len(pool.hits) == query.pool_k:
                    found += await near(modality, list(query.nodes[1:]), query.neighbour_k)
                rows = {
                    hit.item_id: embedding
                    for each in found
                    if each.embeddings is not None
                    for hit, embedding in zip(each.hits, each.embeddings, strict=True)
                }
                pool_PD = np.stack([*rows.values()]) if rows else query.nodes[:0]
                neighbours[modality] = ModalityNeighbours.within(
                    query, pool_PD, np.arange(len(rows))
                )
        return neighbours

    async def describe_index(self, index_id: str, deadline: Deadline) -> ShardDescription:
        """Returns the state of the index."""
        info, counts = await self._index(check_index_id(index_id), deadline)
        parts = [
            IndexPart(modality=modality, item_count=count, index_type=self.index_type)
            for modality, count in counts.items()
        ]
        return ShardDescription(info.fingerprint, info.dimension, parts, KeywordState.DISABLED)

    @abstractmethod
    async def _index(
        self, index_id: str, deadline: Deadline
    ) -> tuple[IndexInfo, Mapping[Modality, int]]:
        """Returns the index's model, and its items of each modality; raises IndexNotFound."""
