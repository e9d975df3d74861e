"""Writes to all items of a selection, page by page, as far as a call's time allows."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tandem.contract.deadline import Deadline
from tandem.contract.search.item_changes import Selecting
from tandem.search.contents.stored_items import StoredItems
from tandem.search.indexes.router import Router
from tandem.search.shard_map import ShardMap
from tandem.search.writes.consistency_token import make_token, read_tokens, switch_count_of

_CALL_SECONDS = 4.0
_SHOWN_ID_COUNT = 20


@dataclass(slots=True)
class Written:
    """Counts what was written, and names the sequences up to which shards were."""

    count: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    switches: dict[str, int] = field(default_factory=dict)
    item_ids: list[str] = field(default_factory=list)
    """The first of a selection."""
    next_page_token: str = ""

    def add(self, count: int, sequences: Mapping[int, int], switches: Mapping[str, int]) -> None:
        """Adds what later writes did."""
        self.count += count
        self.sequences |= sequences
        self.switches |= switches

    def token(self, shard_map: ShardMap) -> str:
        """Returns the consistency token."""
        return make_token(self.sequences, shard_map, self.switches)


WritePage = Callable[[Sequence[str], Written], Awaitable[None]]
"""Writes to the items of the ids, and adds that."""


class SelectedItems:
    """Finds the items of selections."""

    def __init__(self, router: Router, stored_items: StoredItems, shard_map: ShardMap) -> None:
        self._router = router
        self._stored_items = stored_items
        self._shard_map = shard_map

    def begun(self, asked: Selecting) -> Written:
        """Returns what was written before; raises ConsistencyTokenInvalid."""
        written, tokens = Written(), [asked.consistency_token] if asked.consistency_token else []
        written.sequences |= read_tokens(tokens, self._shard_map)
        written.switches[asked.index_id] = switch_count_of(tokens, asked.index_id)
        return written

    async def write(
        self, asked: Selecting, page_size: int, write: WritePage, deadline: Deadline
    ) -> Written:
        """Writes to the items page by page, each once, for some seconds.

        Raises what `write` raises: what is written by then stays.
        """
        written, after = self.begun(asked), asked.page_token
        index_id = (await self._router.route(asked.index_id, deadline)).index_id
        end_time = time.monotonic() + min(_CALL_SECONDS, deadline.left() / 2)
        while True:
            ids, after = await self._stored_items.page(
                index_id, after, page_size, deadline, asked.selection
            )
            written.item_ids += ids[: _SHOWN_ID_COUNT - len(written.item_ids)]
            if asked.dry_run:
                written.count += len(ids)
            elif ids:
                await write(ids, written)
            if not after:
                return written
            if time.monotonic() > end_time:
                written.next_page_token = after
                return written
