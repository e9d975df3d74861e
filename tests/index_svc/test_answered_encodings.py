"""Tests embeddings with hits and encodings with items, which come only on request."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from tandem.contract.content import ImageTokens, TextTokens
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tandem.wire import embedding_from_proto, tokens_from_proto
from tests.index_svc.test_servicer import TIMEOUT_SECONDS, channel, stub
from tests.support.index_svc.encoded_items import encoded_item, search_request, upsert_request
from tests.support.item_store.made_items import FINGERPRINT, image_item, text_item, unit_vector

__all__ = ["channel", "stub"]  # fixtures


async def test_each_hit_has_its_own_embedding(stub: IndexServiceStub) -> None:
    """Rows were replaced and deleted, and there are several queries."""
    items = [text_item(f"item-{n}", n) for n in range(40)]
    await stub.UpsertItems(upsert_request(items))
    await stub.UpsertItems(upsert_request([text_item(f"item-{n}", 100 + n) for n in range(5)]))
    await stub.DeleteItems(pb.DeleteItemsRequest(index_id="scenes", item_ids=["item-7"]))
    request = search_request([2, 104], k=30)
    request.embeddings_included = True

    response = await stub.SearchEmbeddings(request, timeout=TIMEOUT_SECONDS)

    for seed, hit_list in zip([2, 104], response.hit_lists, strict=True):
        assert len(hit_list.hits) == 30
        for hit in hit_list.hits:
            number = int(hit.item_id.removeprefix("item-"))
            embedding = embedding_from_proto(hit.embedding)
            assert np.array_equal(embedding, unit_vector(number + (100 if number < 5 else 0)))
            assert float(embedding @ unit_vector(seed)) == pytest.approx(hit.similarity, abs=1e-6)


async def test_hits_have_no_embeddings_by_default(stub: IndexServiceStub) -> None:
    """Embeddings would be most of a response's bytes."""
    await stub.UpsertItems(upsert_request([text_item("a", 1)]))

    response = await stub.SearchEmbeddings(search_request([1]), timeout=TIMEOUT_SECONDS)

    assert not response.hit_lists[0].hits[0].HasField("embedding")


async def test_embeddings_are_those_that_were_compared(stub: IndexServiceStub) -> None:
    """While an item is replaced repeatedly, its similarity fits the embedding in the response."""
    await stub.UpsertItems(upsert_request([text_item("a", 0)]))
    request = search_request([1])
    request.embeddings_included = True
    is_done = False

    async def replace_it() -> None:
        nonlocal is_done
        for seed in range(60):
            await stub.UpsertItems(upsert_request([text_item("a", seed)]))
        is_done = True

    writing = asyncio.create_task(replace_it())
    count = 0
    while not is_done:
        response = await stub.SearchEmbeddings(request, timeout=TIMEOUT_SECONDS)
        [hit] = response.hit_lists[0].hits
        embedding = embedding_from_proto(hit.embedding)
        assert float(embedding @ unit_vector(1)) == pytest.approx(hit.similarity, abs=1e-6)
        count += 1
    await writing
    assert count > 5


async def test_items_are_read_with_their_encodings(stub: IndexServiceStub) -> None:
    """They come instead of plain items, in the order of the ids, with the model's fingerprint."""
    items = [text_item("a", 1), image_item("b", 2)]
    await stub.UpsertItems(upsert_request(items))

    got = await stub.GetItems(
        pb.GetItemsRequest(index_id="scenes", item_ids=["b", "gone", "a"], encodings_included=True),
        timeout=TIMEOUT_SECONDS,
    )

    assert list(got.items) == []
    assert list(got.encoded_items) == [encoded_item(items[1]), encoded_item(items[0])]
    assert got.model_fingerprint == FINGERPRINT
    assert isinstance(tokens_from_proto(got.encoded_items[0].tokens), ImageTokens)
    assert isinstance(tokens_from_proto(got.encoded_items[1].tokens), TextTokens)
