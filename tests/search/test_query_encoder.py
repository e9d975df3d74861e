"""Queries of every form: their embeddings for retrieval, and their tokens for the rerank."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tandem import errors
from tandem.contract.content import (
    ImageContent,
    ImageTokens,
    Modality,
    TextContent,
    TextTokens,
    TextUse,
    TruncationPolicy,
)
from tandem.contract.deadline import Deadline
from tandem.contract.search.answer_names import RerankStopReason
from tandem.contract.search.ingest import IncomingItem
from tandem.contract.search.query import (
    Depth,
    GivenEncoding,
    RankingRule,
    SearchQuery,
    StoredItem,
    WeightedPart,
)
from tandem.search.query_encoder import EncodedQuery, QueryEncoder
from tandem.v1 import content_pb2
from tandem.v1 import encoder_service_pb2 as encoder_pb
from tandem.wire import tokens_to_proto
from tests.support.orchestrator_svc.downstream import (
    FINGERPRINT,
    Stack,
    ingest,
    raising,
    stack,
    text_tokens,
)

IMAGE_TOKENS = ImageTokens(np.ones((2, 2), dtype=np.float16))


@pytest.fixture(name="behind")
async def _behind() -> AsyncIterator[Stack]:
    """Two shards with texts and images at 0, 10, 20 … degrees."""
    async with stack() as behind:
        items = [
            IncomingItem(f"{kind}-{angle}", content)
            for angle in range(0, 90, 10)
            for kind, content in (
                ("text", TextContent(str(angle))),
                ("image", ImageContent(str(angle).encode())),
            )
        ]
        assert not any((await ingest(behind.ingester, items)).outcomes)
        behind.encoder.calls.clear()
        yield behind


def at(degrees: float) -> NDArray[np.float32]:
    """Returns the embedding of the angle."""
    angle = math.radians(degrees)
    return np.array([math.cos(angle), math.sin(angle)], dtype=np.float32)


def given(
    degrees: float,
    modality: Modality = Modality.TEXT,
    tokens: TextTokens | ImageTokens | None = None,
    fingerprint: str = FINGERPRINT,
) -> GivenEncoding:
    """Returns an encoding that the caller has."""
    sent = None if tokens is None else tokens_to_proto(tokens)
    return GivenEncoding(at(degrees).tolist(), fingerprint, modality, sent)


def query(
    parts: Sequence[WeightedPart],
    *,
    target: Modality = Modality.IMAGE,
    policy: TruncationPolicy = TruncationPolicy.ERROR,
    ranking: RankingRule | None = None,
    is_all: bool = False,
) -> SearchQuery:
    """Returns a search of these parts."""
    return SearchQuery(
        parts=parts,
        index_id="scenes",
        target_modality=target,
        depth=Depth(5, 3, 5),
        truncation_policy=policy,
        ranking=ranking or RankingRule(),
        all_modalities_included=is_all,
    )


async def encode(behind: Stack, *parts: WeightedPart, **asked: object) -> EncodedQuery:
    """Returns the encoding or the error of a query of these parts."""
    encoder = QueryEncoder(behind.stages.encoder, behind.stages.shards, behind.shard_map)
    return await encoder.encode(query(parts, **asked), Deadline.after(10))  # type: ignore[arg-type]


def degrees_of(embedding: NDArray[np.float32]) -> float:
    """Returns the angle that an embedding is at; it is a unit vector."""
    assert np.linalg.norm(embedding) == pytest.approx(1.0, abs=1e-6)
    return math.degrees(math.atan2(embedding[1], embedding[0])) % 360


async def test_contents_are_encoded_in_one_call_as_a_query(behind: Stack) -> None:
    """All of a query's contents, with its policy; the rest comes from elsewhere."""
    behind.encoder.text_uses["10"] = TextUse(3, 3)

    encoded = await encode(
        behind,
        WeightedPart(TextContent("10")),
        WeightedPart(StoredItem("image-40")),
        WeightedPart(ImageContent(b"20")),
        WeightedPart(given(30)),
        policy=TruncationPolicy.TRUNCATE,
    )

    [request] = behind.encoder.requests("EncodeContents")
    assert isinstance(request, encoder_pb.EncodeContentsRequest)
    assert [content.WhichOneof("data") for content in request.contents] == ["text", "image"]
    assert request.purpose == encoder_pb.ENCODE_PURPOSE_QUERY
    assert request.truncation_policy == content_pb2.TRUNCATION_POLICY_TRUNCATE
    [embedding] = encoded.embeddings
    assert degrees_of(embedding) == pytest.approx(25, abs=1e-3)
    assert [use.token_count for use in encoded.text_uses] == [3]
    assert encoded.cost.cache_miss_count == 2


async def test_a_given_encoding_calls_no_encoder(behind: Stack) -> None:
    """Searches by a stored item or a given encoding work without the encoder."""
    behind.encoder.before["EncodeContents"] = raising(
        errors.ModelUnavailable(model="joint", why="gone")
    )

    stored = await encode(behind, WeightedPart(StoredItem("text-70")))
    own = await encode(behind, WeightedPart(given(33)))

    assert degrees_of(stored.embeddings[0]) == pytest.approx(70, abs=1e-3)
    assert degrees_of(own.embeddings[0]) == pytest.approx(33, abs=1e-3)
    assert stored.fingerprint == own.fingerprint == FINGERPRINT
    with pytest.raises(errors.ModelUnavailable):
        await encode(behind, WeightedPart(TextContent("1")))


@pytest.fixture(name="recomputing")
async def _recomputing() -> AsyncIterator[Stack]:
    """Texts and images of a model whose index has no image tokens."""
    async with stack() as behind:
        behind.encoder.stores_image_tokens = False
        items = [
            IncomingItem("text-10", TextContent("10")),
            IncomingItem("image-40", ImageContent(b"40")),
        ]
        assert not any((await ingest(behind.ingester, items)).outcomes)
        behind.encoder.calls.clear()
        yield behind


async def test_a_stored_picture_without_tokens_is_encoded_for_the_rerank(
    recomputing: Stack,
) -> None:
    """Its stored embedding finds; the tokens are those of the same picture sent as a query."""
    encoded = await encode(recomputing, WeightedPart(StoredItem("image-40")), target=Modality.TEXT)

    [request] = recomputing.encoder.requests("EncodeContents")
    assert isinstance(request, encoder_pb.EncodeContentsRequest)
    assert request.purpose == encoder_pb.ENCODE_PURPOSE_QUERY
    assert [content.image for content in request.contents] == [b"40"]
    tokens = encoded.tokens_for(Modality.TEXT, [])
    assert isinstance(tokens, ImageTokens)
    assert np.array_equal(tokens.values, IMAGE_TOKENS.values)
    assert degrees_of(encoded.embeddings[0]) == pytest.approx(40, abs=1e-3)
    assert not encoded.lacks_cross_encoder
    assert encoded.cost.cache_miss_count == 1
    answer = await recomputing.searcher.search(
        replace(
            query([WeightedPart(StoredItem("image-40"))], target=Modality.TEXT),
            rerank_required=True,
        ),
        Deadline.after(10),
    )
    assert answer.rerank.reranked_depth == 1


async def test_a_stored_picture_is_encoded_only_if_its_tokens_are_read(
    recomputing: Stack,
) -> None:
    """Not without a rerank, nor for pictures, which no picture is scored against."""
    encoder = QueryEncoder(
        recomputing.stages.encoder, recomputing.stages.shards, recomputing.shard_map
    )
    picture = [WeightedPart(StoredItem("image-40"))]
    for asked in (
        replace(query(picture, target=Modality.TEXT), rerank_disabled=True),
        query(picture, target=Modality.IMAGE),
        query([WeightedPart(StoredItem("text-10")), *picture], target=Modality.IMAGE),
    ):
        await encoder.encode(asked, Deadline.after(10))

    assert not recomputing.encoder.requests("EncodeContents")
    images = replace(query(picture, target=Modality.IMAGE), rerank_required=True)
    with pytest.raises(errors.RankingInvalid, match="the other modality"):
        await recomputing.searcher.search(images, Deadline.after(10))


async def test_a_stored_picture_that_cannot_be_encoded_still_finds(recomputing: Stack) -> None:
    """The answer is flagged as not reranked; with rerank_required the cause is raised."""
    gone = errors.ModelUnavailable(model="blip", why="gone")
    recomputing.encoder.before["EncodeContents"] = raising(gone)
    asked = query([WeightedPart(StoredItem("image-40"))], target=Modality.TEXT)

    answer = await recomputing.searcher.search(asked, Deadline.after(10))

    assert [item.item_id for item in answer.items] == ["text-10"]
    assert answer.rerank.stop is RerankStopReason.UNAVAILABLE
    assert [each.name for each in answer.degradations] == ["RERANK_SKIPPED"]
    with pytest.raises(errors.ModelUnavailable):
        await recomputing.searcher.search(replace(asked, rerank_required=True), Deadline.after(10))


async def test_stored_items_of_a_bi_encoder_alone_are_encoded_once(recomputing: Stack) -> None:
    """Then it is known to make no tokens; a remote cross-encoder reads the content."""
    recomputing.encoder.has_cross_encoder = False
    encoder = QueryEncoder(
        recomputing.stages.encoder, recomputing.stages.shards, recomputing.shard_map
    )
    asked = query([WeightedPart(StoredItem("image-40"))], target=Modality.TEXT)

    read = [await encoder.encode(asked, Deadline.after(10)) for _ in range(3)]

    assert len(recomputing.encoder.requests("EncodeContents")) == 1
    assert all(each.lacks_cross_encoder for each in read)
    assert [each.contents[Modality.TEXT] for each in read] == [ImageContent(b"40")] * 3


async def test_weights_pull(behind: Stack) -> None:
    """Equal weights give the middle, a negative one turns away; a lone part stays bit for bit."""
    both = await encode(
        behind, WeightedPart(TextContent("0"), 1.0), WeightedPart(TextContent("90"), math.tan(0.2))
    )
    away = await encode(
        behind, WeightedPart(given(45), 1.0), WeightedPart(given(0), -math.sqrt(0.5))
    )
    lone = await encode(behind, WeightedPart(given(12), 7.0))
    turned = await encode(behind, WeightedPart(given(12), -7.0))

    assert degrees_of(both.embeddings[0]) == pytest.approx(math.degrees(0.2), abs=1e-3)
    assert degrees_of(away.embeddings[0]) == pytest.approx(90, abs=1e-3)
    assert np.array_equal(lone.embeddings[0], at(12))
    assert degrees_of(turned.embeddings[0]) == pytest.approx(192, abs=1e-3)


async def test_the_heaviest_part_of_the_other_modality_is_read(behind: Stack) -> None:
    """For images the heaviest text, for texts the heaviest image; never one of negative weight."""
    own = TextTokens(np.array([2, 9, 9, 3], dtype=np.int32))
    encoded = await encode(
        behind,
        WeightedPart(TextContent("10"), 0.5),
        WeightedPart(given(20, tokens=own), 0.7),
        WeightedPart(ImageContent(b"30"), 2.0),
        WeightedPart(given(30), 0.9),
    )
    turned = await encode(
        behind, WeightedPart(given(20, tokens=own), -0.1), WeightedPart(given(40))
    )
    alike = await encode(behind, WeightedPart(ImageContent(b"30")))

    read = encoded.tokens_for(Modality.IMAGE, [])
    assert isinstance(read, TextTokens)
    assert read.ids.tolist() == own.ids.tolist()
    assert isinstance(encoded.tokens_for(Modality.TEXT, []), ImageTokens)
    assert encoded.modality is Modality.IMAGE
    assert turned.tokens_for(Modality.IMAGE, []) is None
    assert alike.tokens_for(Modality.IMAGE, []) is None


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (WeightedPart(given(0)),) * 17,
        (WeightedPart(given(0)), WeightedPart(given(180))),
        (WeightedPart(given(0), 0.0),),
        (WeightedPart(given(0), math.nan),),
    ],
)
async def test_parts_that_make_no_point_are_refused(
    behind: Stack, parts: tuple[WeightedPart, ...]
) -> None:
    """No parts, too many, parts that cancel each other out, or a weight that is not a number."""
    with pytest.raises(errors.QueryInvalid):
        await encode(behind, *parts)


async def test_parts_of_two_models_are_refused(behind: Stack) -> None:
    foreign = WeightedPart(given(10, fingerprint="model-b"))
    for own in (WeightedPart(TextContent("1")), WeightedPart(StoredItem("text-10"))):
        with pytest.raises(errors.ModelMismatch):
            await encode(behind, own, foreign)
        with pytest.raises(errors.ModelMismatch):
            await encode(behind, foreign, own)


@pytest.mark.parametrize("item_id", ["nobody", "image-11"])
async def test_an_item_that_is_not_there_is_named(behind: Stack, item_id: str) -> None:
    with pytest.raises(errors.ItemNotFound, match=item_id):
        await encode(
            behind,
            WeightedPart(StoredItem("image-10")),
            WeightedPart(StoredItem(item_id)),
        )


async def test_an_item_on_a_shard_without_the_index_is_not_there() -> None:
    """Its owner does not know the index, since it never had an item of it."""
    async with stack() as behind:
        here, there = behind.id_on(0), behind.id_on(1)
        await ingest(behind.ingester, [IncomingItem(here, TextContent("0"))])

        with pytest.raises(errors.ItemNotFound, match=there):
            await encode(behind, WeightedPart(StoredItem(there)))


async def test_windows_are_for_a_lone_text(behind: Stack) -> None:
    """Several parts make one embedding; items and images have no windows and ignore the policy."""
    lone = await encode(
        behind, WeightedPart(TextContent("0|90")), policy=TruncationPolicy.BEST_WINDOW
    )
    images = await encode(
        behind,
        WeightedPart(StoredItem("image-10")),
        WeightedPart(ImageContent(b"20")),
        policy=TruncationPolicy.BEST_WINDOW,
    )

    assert [degrees_of(each) for each in lone.embeddings] == pytest.approx([0, 90], abs=1e-3)
    assert len(images.embeddings) == 1
    for parts in (
        [WeightedPart(TextContent("0|90")), WeightedPart(StoredItem("image-10"))],
        [WeightedPart(TextContent("0|90"), -1.0)],
    ):
        with pytest.raises(errors.TruncationPolicyInvalid):
            await encode(behind, *parts, policy=TruncationPolicy.BEST_WINDOW)


async def test_windows_beyond_the_shards_limit_are_refused(behind: Stack) -> None:
    """64 are taken."""
    for count in (64, 65):
        text = "|".join(str(n) for n in range(count))
        made = encode(behind, WeightedPart(TextContent(text)), policy=TruncationPolicy.BEST_WINDOW)
        if count == 64:
            assert len((await made).embeddings) == 64
        else:
            with pytest.raises(errors.TextTooLong, match="windows"):
                await made


async def test_min_probability_is_refused_within_one_modality(behind: Stack) -> None:
    """The cross-encoder cannot score them; with the other modality included, it scores that."""
    ranking = RankingRule(min_probability=0.5)
    part = WeightedPart(TextContent("1"))

    assert await encode(behind, part, ranking=ranking)
    assert await encode(behind, part, target=Modality.TEXT, ranking=ranking, is_all=True)
    with pytest.raises(errors.RankingInvalid):
        await encode(behind, part, target=Modality.TEXT, ranking=ranking)


async def test_an_item_is_found_and_reranked_by_its_nearest_window(behind: Stack) -> None:
    """A text at 12 and 71 degrees: image-70 is nearest of all, so its window is scored."""
    asked = query([WeightedPart(TextContent("12|71"))], policy=TruncationPolicy.BEST_WINDOW)

    answer = await behind.searcher.search(asked, Deadline.after(10))

    # 1 and 2 degrees off, then 8, 9 and 11.
    assert [item.item_id for item in answer.items] == [
        "image-70",
        "image-10",
        "image-20",
        "image-80",
        "image-60",
    ]
    assert answer.items[0].similarity == pytest.approx(math.cos(math.radians(1)), abs=1e-6)
    assert len({item.item_id for item in answer.items}) == 5
    read = [
        np.frombuffer(request.query.text.ids, "<i4").tolist()  # type: ignore[attr-defined]
        for shard in behind.shards
        for request in shard.requests("ScoreCandidates")
    ]
    assert read
    assert all(ids == text_tokens(1).ids.tolist() for ids in read)


async def test_items_of_both_modalities_are_found_and_each_is_reranked_if_possible(
    behind: Stack,
) -> None:
    """A text and an image together: images are scored against the text, texts against the image."""
    for shard in behind.shards:
        shard.logits = {f"{kind}-{n}": -float(n) for kind in ("image", "text") for n in range(90)}
    asked = query([WeightedPart(TextContent("19")), WeightedPart(ImageContent(b"23"))], is_all=True)

    answer = await behind.searcher.search(asked, Deadline.after(10))

    kinds = [entry.modality for entry in answer.items]
    assert kinds == [Modality.IMAGE, Modality.TEXT] * 2 + [Modality.IMAGE]
    assert [item.item_id for item in answer.items[:2]] == ["image-10", "text-10"]
    assert answer.rerank.reranked_depth == 6
    assert answer.coverage.covered_item_count == 18
    scored = {
        (request.query.WhichOneof("tokens"), item_id.split("-")[0])  # type: ignore[attr-defined]
        for shard in behind.shards
        for request in shard.requests("ScoreCandidates")
        for item_id in request.item_ids  # type: ignore[attr-defined]
    }
    assert scored == {("text", "image"), ("image", "text")}


async def test_a_shard_of_an_earlier_version_is_reported(behind: Stack) -> None:
    """It ignores fields that it does not know, so the error asks for its update."""

    async def as_before(request: object) -> None:
        request.embeddings_included = False  # type: ignore[attr-defined]

    async def contents_alone(request: object) -> None:
        request.encodings_included = False  # type: ignore[attr-defined]

    for shard in behind.shards:
        shard.before = {"SearchEmbeddings": as_before, "GetItems": contents_alone}
    diverse = query([WeightedPart(given(10))], ranking=RankingRule(relevance_weight=0.5))

    with pytest.raises(errors.InternalFault, match="update it"):
        await behind.searcher.search(diverse, Deadline.after(10))
    with pytest.raises(errors.InternalFault, match="update it"):
        await encode(behind, WeightedPart(StoredItem("image-10")))
