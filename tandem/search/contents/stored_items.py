"""Reads items by id, and lists ids, over all shards."""

import heapq
from collections.abc import Mapping, Sequence
from itertools import islice

from tandem.contract.deadline import Deadline
from tandem.contract.identifiers import check_index_id, check_item_id
from tandem.contract.limits import (
    DEFAULT_PAGE_SIZE,
    MAX_ITEM_ID_COUNT,
    MAX_PAGE_SIZE,
    check_batch_size,
)
from tandem.contract.search.item_changes import ItemListing, ItemSelection, KeptItem
from tandem.errors import AnswerTooLarge, IndexNotFound, TandemError
from tandem.search.calls.fan_out import answer_or_error, fan_out
from tandem.search.contents.content_budget import AnswerBudget, Taking
from tandem.search.contents.item_reads import fetched_items
from tandem.search.shard_map import ShardMap
from tandem.stages.items import FetchedItem, ItemsQuery
from tandem.stages.shard import Shard


class StoredItems:
    """Reads the items of every shard. A shard without the index has none of its items."""

    def __init__(self, shards: Sequence[Shard], shard_map: ShardMap) -> None:
        """Takes shards by number, as many as the map has."""
        self._shards = shards
        self._shard_map = shard_map

    async def fetch(
        self, asked: ItemsQuery, deadline: Deadline, budget: AnswerBudget | None = None
    ) -> Mapping[str, FetchedItem]:
        """Returns the items that exist by id; raises IndexNotFound, AnswerTooLarge."""
        owned_by = self._shard_map.group(asked.index_id, dict.fromkeys(asked.item_ids))

        async def read(
            number: int, owned: Sequence[str], taking: Taking
        ) -> Mapping[str, FetchedItem] | TandemError:
            reading = fetched_items(self._shards[number], asked.index_id, owned, deadline, taking)
            return await answer_or_error(reading, IndexNotFound)

        async with (budget or AnswerBudget()).taking(
            content_included=asked.content_included, encodings_included=asked.encodings_included
        ) as taking:
            found = await fan_out(*(read(*entry, taking) for entry in owned_by.items()))
        parts = [each for each in found if not isinstance(each, TandemError)]
        if not parts:
            # The shards that own these ids have no item of the index; another one may.
            await self.page(asked.index_id, "", 1, deadline)
        return {item_id: item for part in parts for item_id, item in part.items()}

    async def listed(
        self, asked: ItemListing, deadline: Deadline
    ) -> tuple[Sequence[KeptItem], str]:
        """Returns a page of items, and its last id if there may be more; raises IndexNotFound.

        The page has fewer items where the attributes of as many do not fit into one answer.
        """
        size = DEFAULT_PAGE_SIZE if asked.page_size is None else asked.page_size
        item_ids, last = await self.page(
            asked.index_id, asked.page_token, size, deadline, asked.selection
        )
        if not asked.attributes_included:
            return [KeptItem(each) for each in item_ids], last
        kept: list[KeptItem] = []
        budget, size = AnswerBudget(), MAX_ITEM_ID_COUNT
        while item_ids:
            ids = item_ids[:size]
            bare = ItemsQuery(asked.index_id, ids, content_included=False)
            try:
                found = await self.fetch(bare, deadline, budget)
            except AnswerTooLarge:
                if kept:
                    return kept, kept[-1].item_id
                size //= 2  # An item alone fits, as a write of it did.
                continue
            kept += [KeptItem(each, None, found[each].attributes) for each in ids if each in found]
            del item_ids[:size]
        return kept, last

    async def page(
        self,
        index_id: str,
        after: str,
        size: int,
        deadline: Deadline,
        selection: ItemSelection | None = None,
    ) -> tuple[list[str], str]:
        """Returns ids after that one in byte order, and the last if there may be more.

        Raises IndexNotFound if no shard has the index.
        """
        check_index_id(index_id)
        check_batch_size("page_size", size, MAX_PAGE_SIZE)
        if after:
            check_item_id(after)
        listings = (
            each.list_item_ids(index_id, after, size, deadline, selection) for each in self._shards
        )
        found = await fan_out(*(answer_or_error(each, IndexNotFound) for each in listings))
        lists = [each for each in found if not isinstance(each, TandemError)]
        if not lists:
            raise IndexNotFound(index_id=index_id)
        item_ids = list(islice(heapq.merge(*lists, key=str.encode), size))
        has_more = sum(map(len, lists)) > size or any(len(each) == size for each in lists)
        return item_ids, item_ids[-1] if has_more and item_ids else ""
