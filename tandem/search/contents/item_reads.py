"""Reads any number of a shard's items, within the bytes that answers may hold."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace

from tandem.contract.content import Encoding
from tandem.contract.deadline import Deadline
from tandem.contract.limits import MAX_ITEM_ID_COUNT
from tandem.contract.search.answer import FoundItem
from tandem.search.contents.content_budget import Taking
from tandem.stages.items import FetchedItem, FetchedItems, ItemEmbedding, ItemsQuery
from tandem.stages.shard import Shard

# Most answers' contents are small, and memory is reserved before their size is known.
_FIRST_BYTES = 2 * 2**20
_FURTHER_BYTES = 8 * 2**20


async def fetched_items(
    shard: Shard, index_id: str, item_ids: Sequence[str], deadline: Deadline, taking: Taking
) -> Mapping[str, FetchedItem]:
    """Returns items by their ids, without those that no longer exist.

    `taking` accounts for their bytes; its errors end the read.
    """
    fetched: dict[str, FetchedItem] = {}
    async for part, reserved_bytes in _parts(shard, index_id, item_ids, deadline, taking):
        taking.take(sum(item.size_bytes for item in part.items.values()), reserved_bytes)
        fetched |= {name: _with_embedding(item, part) for name, item in part.items.items()}
    return fetched


def with_contents(
    found: Iterable[FoundItem], contents: Mapping[str, FetchedItem]
) -> list[FoundItem]:
    """Returns the items with what was read of them; a deleted one has nothing."""
    return [
        replace(
            item,
            content=contents[item.item_id].content,
            attributes=dict(sorted(contents[item.item_id].attributes.items())),
        )
        if item.item_id in contents
        else item
        for item in found
    ]


async def stored_encodings(
    shard: Shard, index_id: str, item_ids: Sequence[str], deadline: Deadline
) -> tuple[Mapping[str, Encoding], str]:
    """Returns the existing items' encodings by id, and the fingerprint."""
    encodings: dict[str, Encoding] = {}
    fingerprint = ""
    async for part, _ in _parts(shard, index_id, item_ids, deadline, None):
        encodings |= {name: item.encoding for name, item in part.items.items() if item.encoding}
        fingerprint = part.fingerprint
    return encodings, fingerprint


def _with_embedding(item: FetchedItem, part: FetchedItems) -> FetchedItem:
    """Returns the item without its tokens, which may be far larger."""
    if (encoding := item.encoding) is None:
        return item
    stored = ItemEmbedding(encoding.embedding, encoding.tokens.modality, part.fingerprint)
    return replace(item, encoding=None, embedding=stored)


async def _parts(
    shard: Shard, index_id: str, item_ids: Sequence[str], deadline: Deadline, taking: Taking | None
) -> AsyncIterator[tuple[FetchedItems, int]]:
    """Yields what the shard reads at once, until all ids are looked up.

    With each part comes how many bytes `taking` reserved for it; without one, parts are encodings.
    """
    left = list(item_ids)
    encodings_included = taking is None or taking.encodings_included
    is_bare = not encodings_included and taking is not None and not taking.content_included
    max_bytes = _FIRST_BYTES
    while left:
        if taking is not None:
            await taking.reserve(max_bytes)
        query = ItemsQuery(
            index_id,
            left[:MAX_ITEM_ID_COUNT],
            content_included=taking is not None and taking.content_included,
            encodings_included=encodings_included,
            # The shard counts the records that it reads, and not what it returns of them.
            max_bytes=0 if is_bare else max_bytes,
        )
        part = await shard.get(query, deadline)
        yield part, max_bytes
        del left[: part.read_count]
        max_bytes = _FURTHER_BYTES
