"""ContentService: stored items by id, and the models on contents that are not stored."""

from __future__ import annotations

from dataclasses import replace

import grpc
import pytest

from tandem.chassis.calls.status import REASON_KEY
from tandem.contract.content import ImageContent, TextContent, TextUse
from tandem.contract.model_description import ProbabilityCalibration
from tandem.contract.search.ingest import IncomingItem
from tandem.errors import TextEmpty
from tandem.v1 import content_pb2, error_reason_pb2
from tandem.v1 import content_service_pb2 as pb
from tandem.wire import embedding_from_proto
from tests.support.client.search_server import MODEL
from tests.support.orchestrator_svc.downstream import Stack, content_door, ingest, stack


async def filled(behind: Stack, count: int = 7) -> list[str]:
    """Stores pictures, a few on each shard; returns their ids in byte order."""
    item_ids = sorted(f"item-{number}" for number in range(count))
    items = [
        IncomingItem(item_id, ImageContent(str(number).encode()), {"number": number})
        for number, item_id in enumerate(item_ids)
    ]
    await ingest(behind.ingester, items)
    return item_ids


def text(words: str) -> content_pb2.Content:
    return content_pb2.Content(text=words)


def picture(words: str) -> content_pb2.Content:
    return content_pb2.Content(image=words.encode())


async def refusal(call: grpc.aio.UnaryUnaryCall[object, object]) -> str:
    """Returns the reason of a failed call."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return str(dict(caught.value.trailing_metadata() or ())[REASON_KEY])


async def test_items_are_fetched_by_id_from_every_shard() -> None:
    """In the order asked for, each once, without those that are missing."""
    async with stack() as behind, content_door(behind) as stub:
        item_ids = await filled(behind)
        asked = ["missing", *reversed(item_ids), item_ids[0]]
        response = await stub.FetchItems(pb.FetchItemsRequest(index_id="scenes", item_ids=asked))

    assert [item.item_id for item in response.items] == list(reversed(item_ids))
    assert response.items[0].content.image == b"6"
    assert response.items[0].attributes["number"].integer == 6


async def test_embeddings_come_with_items_from_every_shard() -> None:
    """The same that EmbedContents gives, with the model's fingerprint, and contents or not."""
    async with stack() as behind, content_door(behind) as stub:
        item_ids = await filled(behind)
        asked = pb.FetchItemsRequest(
            index_id="scenes", item_ids=item_ids, embeddings_included=True, content_excluded=True
        )
        bare = await stub.FetchItems(asked)
        asked.content_excluded = False
        whole = await stub.FetchItems(asked)
        made = await stub.EmbedContents(
            pb.EmbedContentsRequest(contents=[each.content for each in whole.items])
        )

    assert [each.item_id for each in bare.items] == item_ids
    assert not any(each.HasField("content") for each in bare.items)
    assert list(bare.embeddings) == list(whole.embeddings)
    assert [each.embedding for each in bare.embeddings] == [each.embedding for each in made.results]
    assert {each.modality for each in bare.embeddings} == {content_pb2.MODALITY_IMAGE}
    assert bare.model_fingerprint == whole.model_fingerprint == made.model_fingerprint


async def test_an_index_that_is_nowhere_is_not_found() -> None:
    async with stack() as behind, content_door(behind) as stub:
        here = behind.id_on(0)
        await ingest(behind.ingester, [IncomingItem(here, TextContent("1"), {})])
        fetched = await stub.FetchItems(
            pb.FetchItemsRequest(index_id="scenes", item_ids=[here, behind.id_on(1)])
        )
        elsewhere = await stub.FetchItems(
            pb.FetchItemsRequest(index_id="scenes", item_ids=[behind.id_on(1)])
        )
        reasons = [
            await refusal(stub.FetchItems(pb.FetchItemsRequest(index_id="no", item_ids=["a"]))),
            await refusal(stub.ListItems(pb.ListItemsRequest(index_id="no"))),
        ]

    assert [item.item_id for item in fetched.items] == [here]
    assert not elsewhere.items
    assert reasons == ["INDEX_NOT_FOUND"] * 2


@pytest.mark.parametrize("size", [1, 3, 8])
async def test_pages_of_ids_are_all_of_them_in_order(size: int) -> None:
    """Whatever the size of a page; an empty token ends them."""
    async with stack() as behind, content_door(behind) as stub:
        item_ids = await filled(behind)
        listed: list[str] = []
        token = ""
        for _ in range(20):
            page = await stub.ListItems(
                pb.ListItemsRequest(index_id="scenes", page_size=size, page_token=token)
            )
            assert len(page.item_ids) <= size
            listed += page.item_ids
            token = page.next_page_token
            if not token:
                break

    assert listed == item_ids


async def test_embeddings_are_those_of_a_search() -> None:
    """One that fails leaves the others."""
    async with stack() as behind, content_door(behind) as stub:
        behind.encoder.refused["empty"] = TextEmpty()
        response = await stub.EmbedContents(
            pb.EmbedContentsRequest(contents=[text("90"), text("empty"), picture("0"), {}])
        )

    first, second, third, fourth = response.results
    assert embedding_from_proto(first.embedding).tolist() == pytest.approx([0, 1], abs=1e-6)
    assert embedding_from_proto(third.embedding).tolist() == pytest.approx([1, 0])
    assert second.error.reason == error_reason_pb2.ERROR_REASON_TEXT_EMPTY
    assert fourth.error.reason == error_reason_pb2.ERROR_REASON_CONTENT_MISSING
    assert response.model_fingerprint == "model-a"


async def test_documents_are_scored_given_or_stored() -> None:
    """The cross-encoder scores the other modality; of the same one there is the similarity."""
    async with stack() as behind, content_door(behind) as stub:
        item_ids = await filled(behind)
        for shard in behind.shards:
            shard.logits = {item_ids[2]: 5.0}
        response = await stub.ScoreDocuments(
            pb.ScoreDocumentsRequest(
                query=text("0"),
                index_id="scenes",
                documents=[
                    pb.Document(content=picture("60")),
                    pb.Document(item_id=item_ids[2]),
                    pb.Document(content=text("60")),
                    pb.Document(content=picture("0")),
                    pb.Document(item_id="missing"),
                    pb.Document(),
                ],
            )
        )

    given, stored, same, second, missing, empty = response.scores
    assert (given.match_logit, second.match_logit, stored.match_logit) == (1, 2, 5)
    assert given.similarity == pytest.approx(0.5)
    assert not stored.HasField("similarity")
    assert (same.HasField("match_logit"), same.similarity) == (False, pytest.approx(0.5))
    assert missing.error.reason == error_reason_pb2.ERROR_REASON_ITEM_NOT_FOUND
    assert empty.error.reason == error_reason_pb2.ERROR_REASON_CONTENT_MISSING
    assert response.reranker == "cross-a"
    assert not response.probability_withheld
    # The text has a similarity alone, since nobody says what that means.
    assert response.scales_differ


async def test_two_texts_have_the_probability_of_their_similarity() -> None:
    """With it, texts and images have one order; images for an image have none."""
    scaling = ProbabilityCalibration(10.0, -5.0)
    async with stack() as behind, content_door(behind) as stub:
        behind.encoder.description = replace(
            MODEL, fingerprint="model-a", text_similarity_calibration=scaling
        )
        behind.encoder.text_uses["60"] = TextUse(90, 64)
        documents = [pb.Document(content=each) for each in (text("60"), picture("60"))]
        alone, mixed, by_image = [
            await stub.ScoreDocuments(pb.ScoreDocumentsRequest(query=query, documents=asked))
            for query, asked in [
                (text("0"), documents[:1]),
                (text("0"), documents),
                (picture("0"), documents),
            ]
        ]

    [score] = alone.scores
    assert score.match_probability == pytest.approx(0.5, abs=1e-5)
    assert (score.text_use.used_token_count, score.text_use.truncated) == (64, True)
    assert not mixed.scores[0].HasField("match_logit")
    assert (alone.scales_differ, mixed.scales_differ) == (False, False)
    assert by_image.scales_differ


async def test_documents_are_scored_without_a_shard_and_its_stored_items_say_so() -> None:
    """Given ones by any other rerank_svc, at the first call; without all of them none is."""
    async with stack() as behind, content_door(behind) as stub:
        lost, kept = behind.id_on(0), behind.id_on(1)
        await ingest(
            behind.ingester, [IncomingItem(each, ImageContent(b"1")) for each in (lost, kept)]
        )
        behind.shards[1].logits = {kept: 5.0}
        request = pb.ScoreDocumentsRequest(
            query=text("0"),
            index_id="scenes",
            documents=[
                pb.Document(item_id=lost),
                pb.Document(item_id=kept),
                pb.Document(content=picture("60")),
            ],
        )
        await behind.stop_shard(0)
        response = await stub.ScoreDocuments(request)
        await behind.stop_shard(1)
        refused = await refusal(stub.ScoreDocuments(request))

    missing, stored, given = response.scores
    assert missing.error.reason == error_reason_pb2.ERROR_REASON_SERVICE_UNAVAILABLE
    assert (stored.match_logit, given.match_logit) == (5, 1)
    assert refused == "SERVICE_UNAVAILABLE"


async def test_an_uncalibrated_cross_encoder_scores_documents_without_probabilities() -> None:
    """Its logits order them; the answer names why that is all."""
    async with stack() as behind, content_door(behind) as stub:
        for shard in behind.shards:
            shard.is_calibrated = False
        response = await stub.ScoreDocuments(
            pb.ScoreDocumentsRequest(
                query=text("0"), documents=[pb.Document(content=picture("60"))]
            )
        )

    [score] = response.scores
    assert score.match_logit == 1
    assert not score.HasField("match_probability")
    assert response.probability_withheld == error_reason_pb2.ERROR_REASON_UNCALIBRATED


async def test_many_documents_are_scored_in_parts() -> None:
    """Each in its place."""
    documents = [pb.Document(content=picture(str(number))) for number in range(70)]
    async with stack() as behind, content_door(behind) as stub:
        response = await stub.ScoreDocuments(
            pb.ScoreDocumentsRequest(query=text("0"), documents=documents)
        )

    logits = [score.match_logit for score in response.scores]
    assert logits == [*range(1, 33), *range(1, 33), *range(1, 7)]


async def test_documents_that_cannot_be_scored_are_refused_by_name() -> None:
    """Too many, none, no query, and windows."""
    window = content_pb2.TRUNCATION_POLICY_BEST_WINDOW
    document = pb.Document(content=picture("1"))
    requests = [
        pb.ScoreDocumentsRequest(query=text("0")),
        pb.ScoreDocumentsRequest(query=text("0"), documents=[document] * 201),
        pb.ScoreDocumentsRequest(documents=[document]),
        pb.ScoreDocumentsRequest(query=text("0"), documents=[pb.Document(item_id="a")]),
        pb.ScoreDocumentsRequest(query=text("0"), documents=[document], truncation_policy=window),
    ]
    async with stack() as behind, content_door(behind) as stub:
        reasons = [await refusal(stub.ScoreDocuments(each)) for each in requests]

    assert reasons == [
        "BATCH_SIZE_OUT_OF_RANGE",
        "BATCH_SIZE_OUT_OF_RANGE",
        "CONTENT_MISSING",
        "INDEX_ID_INVALID",
        "TRUNCATION_POLICY_INVALID",
    ]
