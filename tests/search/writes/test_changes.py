"""Changes and copies over two shards and of selections: no item is encoded again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tandem import errors
from tandem.contract.filtering.attribute_wire import CheckedFilter, checked_filter, filter_to_proto
from tandem.contract.filtering.filters import Exists, Filter, OneOf
from tandem.contract.search.item_changes import (
    Changes,
    ItemListing,
    ItemPatch,
    ItemsChange,
    ItemSelection,
    ItemsRemoval,
)
from tandem.search.orchestrator import Orchestrator
from tandem.stages.items import ItemsQuery
from tests.support.orchestrator_svc.generations import (
    ids_of,
    in_time,
    ingest,
    orchestrator_over,
    query_of,
)
from tests.support.orchestrator_svc.local_shards import local_shards

IDS = [f"sku/{number:03d}" for number in range(40)]


@asynccontextmanager
async def filled(folder: Path) -> AsyncIterator[Orchestrator]:
    """Yields an orchestrator over two shards that have items of the ids."""
    async with local_shards(folder) as shards:
        one = orchestrator_over(shards, "model-a")
        assert not any(each.error for each in await ingest(one, *IDS))
        await one.router.book.close()
        yield (other := orchestrator_over(shards, "model-a"))
        await other.router.book.close()


async def change(one: Orchestrator, *patches: ItemPatch, **asked: object) -> Changes:
    """Returns the outcome in the index photos."""
    query = ItemsChange(index_id="photos", patches=patches)
    return await one.change(replace(query, **asked), in_time())  # type: ignore[arg-type]


async def listed(one: Orchestrator, selection: ItemSelection | None = None) -> list[str]:
    """Returns the selected ids."""
    asked = ItemListing(index_id="photos", page_size=1_000, selection=selection)
    return [each.item_id for each in (await one.list_items(asked, in_time()))[0]]


def of(where: Filter) -> CheckedFilter:
    return checked_filter(filter_to_proto(where))


async def test_changes_are_found_with_their_token_and_failures_are_named(tmp_path: Path) -> None:
    """A repeated request changes nothing, also where another write came between."""
    async with filled(tmp_path) as one:
        prices = [ItemPatch(each, {"price": number}) for number, each in enumerate(IDS)]
        bad = [ItemPatch("gone", {"price": 1}), ItemPatch("sku/001", {"not a name": 1})]

        changed = await change(one, *prices, *bad, request_id="daily")
        assert changed.changed_count == 40
        assert [(each.item_id, each.error.reason) for each in changed.failures] == [
            ("sku/001", "ATTRIBUTE_INVALID"),
            ("gone", "ITEM_NOT_FOUND"),
        ]
        asked = replace(
            query_of(tokens=[changed.consistency_token]), filter=of(OneOf("price", (7, 9)))
        )
        assert ids_of(await one.search(asked, in_time())) == {"sku/007", "sku/009"}

        await change(one, ItemPatch("sku/007", {"price": 70}))
        again = await change(one, *prices, *bad, request_id="daily")
        assert (again.changed_count, len(again.failures)) == (40, 2)
        assert await listed(one, ItemSelection(filter=of(OneOf("price", (7,))))) == []
        with pytest.raises(errors.RequestIdReused, match="daily"):
            await change(one, *prices[:20], request_id="daily")
        with pytest.raises(errors.IndexNotFound):
            await change(one, ItemPatch("a", {"n": 1}), index_id="nowhere")


async def test_a_copy_is_the_item_under_another_id(tmp_path: Path) -> None:
    """Over both shards, with other attributes; then a rename is a removal away."""
    async with filled(tmp_path) as one:
        copies = [
            ItemPatch(f"new/{each[4:]}", {"moved": True}, copied_from_item_id=each) for each in IDS
        ]
        missing = ItemPatch("x", copied_from_item_id="gone")
        more = [ItemPatch(f"more/{n}", copied_from_item_id=IDS[0]) for n in range(3)]

        changed = await change(one, *copies, missing, ItemPatch("new/003", {"n": 3}), *more)
        assert changed.changed_count == 44
        [failure] = changed.failures
        assert (failure.item_id, failure.error.reason) == ("x", "ITEM_NOT_FOUND")
        assert "gone" in failure.error.message

        found = await one.fetch_items(ItemsQuery("photos", ["new/003", "sku/003"]), in_time())
        assert found["new/003"].content == found["sku/003"].content
        assert found["new/003"].attributes == {"moved": True, "n": 3}
        answer = await one.search(query_of("sku/005", return_n=2), in_time())
        assert ids_of(answer) == {"sku/005", "new/005"}
        assert [each.similarity for each in answer.items] == pytest.approx([1.0, 1.0])
        removal = ItemsRemoval(index_id="photos", selection=ItemSelection(id_glob="sku/*"))
        assert (await one.remove(removal, in_time())).removed_count == 40
        assert await listed(one) == sorted(each.item_id for each in (*copies, *more))


async def test_a_selection_is_shown_changed_and_removed(tmp_path: Path) -> None:
    async with filled(tmp_path) as one:
        tens = ItemSelection(id_glob="sku/?1?")
        patch = ItemPatch("", {"tens": 1})

        shown = await change(one, patch, selection=tens, dry_run=True)
        assert (shown.changed_count, shown.item_ids) == (10, IDS[10:20])
        assert await listed(one, ItemSelection(filter=of(Exists("tens")))) == []
        assert (await change(one, patch, selection=tens)).changed_count == 10
        assert await listed(one, ItemSelection("sku/", filter=of(Exists("tens")))) == IDS[10:20]

        removal = ItemsRemoval(
            index_id="photos", selection=ItemSelection(filter=of(Exists("tens"))), dry_run=True
        )
        assert (await one.remove(removal, in_time())).removed_count == 10
        assert len(await listed(one)) == 40
        await one.remove(replace(removal, dry_run=False), in_time())
        assert await listed(one) == IDS[:10] + IDS[20:]
        with pytest.raises(errors.RequestMalformed, match='id_glob to "\\*"'):
            ItemsRemoval(index_id="photos", selection=ItemSelection())
