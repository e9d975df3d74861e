"""Reads a stored item that is a query and has no tokens for a cross-encoder.

An index lacks tokens of pictures if its model computes them on demand, and has none at all if its
model is a bi-encoder alone; a remote cross-encoder then reads the contents.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tandem.contract.content import Content, Tokens
from tandem.contract.deadline import Deadline
from tandem.contract.inference_cost import InferenceCost
from tandem.errors import ItemNotFound, TandemError
from tandem.search.contents.content_budget import AnswerBudget
from tandem.search.contents.item_reads import fetched_items
from tandem.search.shard_map import ShardMap
from tandem.stages.encoding import EncodePurpose, Encoder
from tandem.stages.shard import Shard


@dataclass(frozen=True, slots=True, eq=False)
class StoredQuery:
    """Holds a stored item as a cross-encoder reads it."""

    content: Content
    tokens: Tokens | None
    """None if the model makes none for a query either."""
    cost: InferenceCost


class StoredContents:
    """Reads contents by item id, and encodes them as queries."""

    def __init__(self, encoder: Encoder, shards: Sequence[Shard], shard_map: ShardMap) -> None:
        """Takes `shards` by number, as many as the map has."""
        self._encoder = encoder
        self._shards = shards
        self._shard_map = shard_map
        self._fingerprint_without_tokens = ""
        """The last model that turned out to be a bi-encoder alone, so as not to ask it again."""

    async def read(
        self, index_id: str, item_id: str, fingerprint: str, deadline: Deadline
    ) -> StoredQuery:
        """Returns the item's content, and the tokens that the index's model makes of it.

        Raises ItemNotFound, and the errors of the shard, the encoder and the content.
        """
        [number] = self._shard_map.group(index_id, [item_id])
        async with AnswerBudget().taking() as taking:
            found = await fetched_items(self._shards[number], index_id, [item_id], deadline, taking)
        if item_id not in found or (content := found[item_id].content) is None:
            raise ItemNotFound(item_id=item_id)
        if fingerprint == self._fingerprint_without_tokens:
            return StoredQuery(content, None, InferenceCost())
        made = await self._encoder.encode([content], deadline, purpose=EncodePurpose.QUERY)
        [outcome] = made.outcomes
        if isinstance(outcome, TandemError):
            raise outcome
        if made.fingerprint != fingerprint:
            return StoredQuery(content, None, made.cost)  # the search itself will refuse the model
        if outcome.tokens.is_empty:
            self._fingerprint_without_tokens = fingerprint
            return StoredQuery(content, None, made.cost)
        return StoredQuery(content, outcome.tokens, made.cost)
