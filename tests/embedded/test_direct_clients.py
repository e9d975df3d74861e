"""The rooms called with their own types say what they say in messages, and a search sends none."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embedded.local_server import LocalServer
from embedded.model_folder import ModelFolder
from embedded.services import InProcessServices
from tandem import Engine
from tandem.contract.content import Content, Encoding, ImageContent, Modality, TextContent
from tandem.contract.deadline import Deadline
from tandem.contract.filters import Exists
from tandem.errors import (
    DeadlineExceeded,
    IndexNotFound,
    ModelMismatch,
    TandemError,
    TextTooLong,
    TokensInvalid,
)
from tandem.inference.joined_scoring import JoinedScoring
from tandem.modeling.in_process.in_process_runner import InProcessRunner
from tandem.remote.encoder_client import EncoderClient
from tandem.remote.rerank_client import RerankClient
from tandem.remote.shard_client import ShardClient
from tandem.repository.manifest import Manifest
from tandem.stages.encoding import EncodePurpose
from tandem.stages.items import ItemRecord
from tandem.stages.reranking import Candidates, ScoreQuery
from tandem.stages.retrieval import Embeddings, ShardQuery
from tests.support.pictures.pictures import encoded, noise

INDEX = "colours"
LONG_SECONDS = 600.0
TEXT = TextContent("two dogs left of one umbrella")


def soon() -> Deadline:
    """Returns a deadline that no test reaches."""
    return Deadline.after(LONG_SECONDS)


@pytest.fixture(name="services")
async def _services(
    tmp_path: Path, tiny_repository: Path, tiny_manifest: Manifest
) -> AsyncIterator[InProcessServices]:
    """Yields the rooms over one shard, which has six pictures."""
    found = ModelFolder(tiny_repository, tiny_manifest)
    opened = InProcessServices(lambda: found, [tmp_path / "shard-0"], caches=False)
    await opened.start()
    pictures = [ImageContent(encoded(noise(number), "PNG")) for number in range(6)]
    made = await opened.clients.encoder.encode(pictures, soon())
    items = [
        ItemRecord(f"picture-{number}", picture, outcome)
        for number, (picture, outcome) in enumerate(zip(pictures, made.outcomes, strict=True))
        if isinstance(outcome, Encoding)
    ]
    await opened.clients.shards[0].upsert(INDEX, tiny_manifest.fingerprint, items, "", soon())
    yield opened
    opened.close()


async def queried(services: InProcessServices) -> Encoding:
    """Returns the encoding of the query."""
    made = await services.clients.encoder.encode([TEXT], soon(), purpose=EncodePurpose.QUERY)
    assert isinstance(made.outcomes[0], Encoding)
    return made.outcomes[0]


def shard_query(manifest: Manifest, embeddings: Embeddings, **changed: Any) -> ShardQuery:
    """Returns a query of the shard for its five nearest pictures."""
    plain = ShardQuery(INDEX, manifest.fingerprint, Modality.IMAGE, Modality.TEXT, 5, embeddings)
    return dataclasses.replace(plain, **changed)


def test_a_search_sends_no_message_between_rooms(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With words, a filter, or neither; one that returns contents shows that they are seen."""
    pictures = [(f"picture-{n}", encoded(noise(n), "PNG")) for n in range(3)]
    assert not any(each.error for each in engine.ingest(pictures, index_id=INDEX))
    answer, sent = LocalServer.answer, list[str]()

    async def seen(self: LocalServer, path: str, *given: Any) -> Any:
        sent.append(path.rpartition("/")[2])
        return await answer(self, path, *given)

    monkeypatch.setattr(LocalServer, "answer", seen)
    found = engine.search(TEXT.text, index_id=INDEX)
    assert found.rerank.reranked_depth == 3
    assert engine.search(TEXT.text, index_id=INDEX, hybrid=True).items
    assert engine.search(TEXT.text, index_id=INDEX, where=~Exists("a"), relevance_weight=0.5).items
    assert sent == []
    assert engine.search(TEXT.text, index_id=INDEX, content_included=True).items
    assert sent == ["SearchItems"] * 4 + ["GetItems"]


def test_the_pairs_of_all_shards_go_to_the_model_together(
    tmp_path: Path, tiny_repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One inference encodes the query, and one scores what both shards have."""
    infer, counts = InProcessRunner.infer, list[int]()

    async def seen(self: InProcessRunner, model: str, inputs: Any, *given: Any) -> Any:
        counts.append(len(next(iter(inputs.values()))))
        return await infer(self, model, inputs, *given)

    # However long a shard takes to read.
    patient = partial(JoinedScoring, LONG_SECONDS)
    monkeypatch.setattr("tandem.inference.served_model.JoinedScoring", patient)
    with Engine(tmp_path, model=tiny_repository, shards=2, caches=False) as engine:
        pictures = [(f"picture-{n}", encoded(noise(n), "PNG")) for n in range(9)]
        assert not any(each.error for each in engine.ingest(pictures, index_id=INDEX))
        monkeypatch.setattr(InProcessRunner, "infer", seen)
        found = engine.search(TEXT.text, index_id=INDEX)
        assert (found.rerank.reranked_depth, found.coverage.shard_count) == (9, 2)
        assert found.cost.pair_count == 9
        assert counts == [1, 9]


async def test_an_encoding_is_that_of_a_message(services: InProcessServices) -> None:
    """Of a text, of a picture, and of a text that is refused."""
    contents: list[Content] = [TEXT, ImageContent(encoded(noise(3), "PNG"))]
    for given in (contents[:1], contents[1:], contents, [TEXT, TextContent("dogs " * 900)]):
        direct, sent = [
            await encode(services.clients.encoder, given, soon(), purpose=EncodePurpose.QUERY)
            for encode in (type(services.clients.encoder).encode, EncoderClient.encode)
        ]
        assert direct.fingerprint == sent.fingerprint
        assert direct.model_version == sent.model_version
        assert direct.cost.token_count == sent.cost.token_count
        for one, other in zip(direct.outcomes, sent.outcomes, strict=True):
            if isinstance(other, TandemError):
                assert type(one) is type(other) is TextTooLong
                assert str(one) == str(other)
                continue
            assert isinstance(one, Encoding)
            np.testing.assert_allclose(one.embedding, other.embedding, atol=1e-6)
            assert one.text_use == other.text_use
            assert type(one.tokens) is type(other.tokens)


async def test_what_a_shard_finds_is_that_of_a_message(
    services: InProcessServices, tiny_manifest: Manifest
) -> None:
    """For one embedding, for several windows of one query, and for several queries."""
    shard, own = services.clients.shards[0], (await queried(services)).embedding
    other = np.roll(own, 1)
    for requests in ([[own]], [[own, other]], [[own], [other, own]]):
        queries = [shard_query(tiny_manifest, each) for each in requests]
        direct = await shard.search_each(queries, soon())
        sent = await ShardClient.search_each(shard, queries, soon())
        assert [len(each.hits) for each in direct] == [5] * len(requests)
        assert direct == sent


async def test_scores_are_those_of_a_message(
    services: InProcessServices, tiny_manifest: Manifest
) -> None:
    """In their order, without an item that is not there."""
    reranker = services.clients.shards[0].reranker
    query = ScoreQuery(INDEX, tiny_manifest.fingerprint)
    ids = ["picture-3", "gone", "picture-1"]
    candidates = Candidates((await queried(services)).tokens, ids)
    direct = await reranker.score(query, candidates, soon())
    sent = await RerankClient._score(reranker, query, candidates, soon())
    assert list(direct.matches) == ["picture-3", "picture-1"]
    assert direct.matches == sent.matches
    assert direct.cost.pair_count == sent.cost.pair_count == 2
    assert (direct.reranker, direct.default_fusion) == (sent.reranker, sent.default_fusion)
    assert direct.model_version == sent.model_version


async def test_errors_are_those_of_messages(
    services: InProcessServices, tiny_manifest: Manifest
) -> None:
    """Of a shard that has no such index, of another model, of tokens of the wrong kind, of time."""
    clients, query = services.clients, await queried(services)
    shard, own = clients.shards[0], [query.embedding]
    for changed, error in (
        ({"index_id": "none"}, IndexNotFound),
        ({"fingerprint": "another"}, ModelMismatch),
    ):
        asked = shard_query(tiny_manifest, own, **changed)
        for client in (type(shard), ShardClient):
            with pytest.raises(error):
                await client.search_each(shard, [asked], soon())
    made = await clients.encoder.encode([ImageContent(encoded(noise(3), "PNG"))], soon())
    assert isinstance(made.outcomes[0], Encoding)
    picture = Candidates(made.outcomes[0].tokens, ["picture-1"])
    with pytest.raises(TokensInvalid):
        await shard.reranker.score(ScoreQuery(INDEX, tiny_manifest.fingerprint), picture, soon())
    with pytest.raises(DeadlineExceeded):
        await clients.encoder.encode([TEXT], Deadline.after(0.0), purpose=EncodePurpose.QUERY)
