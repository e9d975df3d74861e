"""RerankService over a real server, with a real item store and a real Triton."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import pytest_asyncio

from tandem import errors
from tandem.chassis.calls.status import error_from_rpc
from tandem.chassis.capacity.caller_turns import CallerTurns
from tandem.chassis.telemetry.metrics import REGISTRY
from tandem.inference.served_model import ServedModel
from tandem.item_store.item_store import ItemStore
from tandem.local.free_ports import free_ports
from tandem.repository.manifest import Manifest
from tandem.reranking.reranker import ModelReranker
from tandem.stages.reranking import Candidates
from tandem.triton.client import TritonClient
from tandem.v1 import content_pb2
from tandem.v1 import rerank_service_pb2 as pb
from tandem.v1.rerank_service_pb2_grpc import (
    RerankServiceStub,
)
from tandem.wire import tokens_to_proto
from tests.support.rerank_svc.served_reranker import (
    IMAGE_COUNT,
    INDEX_ID,
    MAP_BYTES,
    OTHER_MODEL_INDEX_ID,
    QUERY,
    TEXTS,
    TIMEOUT_SECONDS,
    image_tokens,
    request,
    served,
    text_tokens,
    write_store,
)


@pytest.fixture(scope="module")
def store_path(tmp_path_factory: pytest.TempPathFactory, tiny_manifest: Manifest) -> Path:
    return write_store(tmp_path_factory.mktemp("rerank") / "shard", tiny_manifest)


@pytest_asyncio.fixture(scope="module")
async def stub(tiny_served: ServedModel, store_path: Path) -> AsyncIterator[RerankServiceStub]:
    async with served(tiny_served, store_path) as stub:
        yield stub


@pytest.fixture
def fingerprint(tiny_manifest: Manifest) -> str:
    return tiny_manifest.fingerprint


async def refusal(
    stub: RerankServiceStub, message: pb.ScoreCandidatesRequest
) -> tuple[grpc.StatusCode, errors.TandemError]:
    """Returns the code and the error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ScoreCandidates(message, timeout=TIMEOUT_SECONDS)
    return caught.value.code(), error_from_rpc(caught.value, "rerank")


async def test_text_scores_stored_images(
    stub: RerankServiceStub, tiny_served: ServedModel, tiny_manifest: Manifest
) -> None:
    """Each score is the model's for that pair alone, in the order asked for."""
    seeds = [7, 3, 19, 0]
    alone = [
        await tiny_served.match_logits(
            [QUERY.ids], [image_tokens(seed, tiny_manifest).values], TIMEOUT_SECONDS
        )
        for seed in seeds
    ]
    expected = [inferred.values for inferred in alone]

    response = await stub.ScoreCandidates(
        request([f"i-{seed}" for seed in seeds], tiny_manifest.fingerprint)
    )

    logits = [score.match_logit for score in response.scores]
    np.testing.assert_allclose(logits, np.concatenate(expected), atol=1e-4)
    assert len({round(logit, 3) for logit in logits}) > 1
    # This model was not calibrated.
    assert not any(score.HasField("match_probability") for score in response.scores)


async def test_image_scores_stored_texts_of_different_lengths(
    stub: RerankServiceStub, tiny_served: ServedModel, tiny_manifest: Manifest
) -> None:
    """The other direction: texts are padded to different lengths and still come back in order."""
    picture = image_tokens(5, tiny_manifest)
    alone = [
        await tiny_served.match_logits([TEXTS[item_id].ids], [picture.values], TIMEOUT_SECONDS)
        for item_id in ("t-long", "t-short")
    ]
    expected = [inferred.values for inferred in alone]

    response = await stub.ScoreCandidates(
        request(["t-long", "t-short"], tiny_manifest.fingerprint, picture)
    )

    logits = [score.match_logit for score in response.scores]
    np.testing.assert_allclose(logits, np.concatenate(expected), atol=1e-4)


async def test_tokens_score_as_the_item_that_has_them(
    stub: RerankServiceStub, tiny_manifest: Manifest
) -> None:
    """Without being stored, in the order given; another model's are refused."""
    fingerprint, seeds = tiny_manifest.fingerprint, [7, 3, 19]
    stored = await stub.ScoreCandidates(request([f"i-{seed}" for seed in seeds], fingerprint))
    message = pb.ScoreTokensRequest(
        query=tokens_to_proto(QUERY),
        model_fingerprint=fingerprint,
        candidates=[tokens_to_proto(image_tokens(seed, tiny_manifest)) for seed in seeds],
    )

    given = await stub.ScoreTokens(message)

    np.testing.assert_allclose(
        [score.match_logit for score in given.scores],
        [score.match_logit for score in stored.scores],
        atol=1e-4,
    )
    assert given.reranker == fingerprint
    message.model_fingerprint = "another"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ScoreTokens(message)
    assert error_from_rpc(caught.value, "rerank").reason == "MODEL_MISMATCH"


async def test_item_that_is_gone_has_no_score(stub: RerankServiceStub, fingerprint: str) -> None:
    """It was deleted between retrieval and reranking; the others are scored all the same."""
    response = await stub.ScoreCandidates(request(["i-0", "gone", "i-1"], fingerprint))

    scored = [score.HasField("match_logit") for score in response.scores]
    assert scored == [True, False, True]
    assert not response.scores[1].HasField("match_probability")


async def test_largest_request_is_scored(stub: RerankServiceStub, fingerprint: str) -> None:
    """200 candidates are over the model's batch of 128 and come back in order."""
    item_ids = [f"i-{number}" for number in range(IMAGE_COUNT)]
    assert len(item_ids) == 200
    halves = [
        await stub.ScoreCandidates(request(half, fingerprint))
        for half in (item_ids[:100], item_ids[100:])
    ]

    response = await stub.ScoreCandidates(request(item_ids, fingerprint))

    expected = [score.match_logit for half in halves for score in half.scores]
    logits = [score.match_logit for score in response.scores]
    np.testing.assert_allclose(logits, expected, atol=1e-4)
    assert len({round(logit, 3) for logit in logits}) > 20


async def test_an_item_requested_twice_is_scored_once(
    stub: RerankServiceStub, fingerprint: str
) -> None:
    response = await stub.ScoreCandidates(request(["i-0", "i-1", "i-0"], fingerprint))

    first, other, again = response.scores
    assert first == again != other
    assert response.cost.pair_count == 2


async def test_the_response_has_the_time_of_each_step(
    stub: RerankServiceStub, fingerprint: str
) -> None:
    """Both stages took some, and the histograms and the counter of pairs saw them."""

    def samples() -> list[float]:
        name = "tandem_rerank_stage_duration_seconds_count"
        return [
            REGISTRY.get_sample_value(name, {"stage": "read"}) or 0.0,
            REGISTRY.get_sample_value(name, {"stage": "inference"}) or 0.0,
            REGISTRY.get_sample_value("tandem_rerank_pairs_scored_total") or 0.0,
        ]

    before = samples()
    response = await stub.ScoreCandidates(request(["i-0", "gone", "i-1"], fingerprint))

    assert response.read_duration.ToNanoseconds() > 0
    assert response.inference_duration.ToNanoseconds() > 0
    assert [now - then for now, then in zip(samples(), before, strict=True)] == [1, 1, 2]


BAD_REQUESTS: dict[str, tuple[dict[str, Any], type[errors.TandemError]]] = {
    "no items": ({"item_ids": []}, errors.BatchSizeOutOfRange),
    "too many items": ({"item_ids": ["i-0"] * 201}, errors.BatchSizeOutOfRange),
    "NUL in an id": ({"item_ids": ["a\0b"]}, errors.ItemIdInvalid),
    "bad index": ({"index_id": "../etc"}, errors.IndexIdInvalid),
    "no such index": ({"index_id": "absent"}, errors.IndexNotFound),
    "no query": ({"query": None}, errors.TokensInvalid),
    "one modality": ({"item_ids": ["t-short"]}, errors.TokensInvalid),
    "unknown token": ({"query": text_tokens(2, 10**6, 3)}, errors.TokensInvalid),
    "narrow image": ({"item_ids": ["i-narrow"]}, errors.TokensInvalid),
    "other model": ({"fingerprint": "model-x"}, errors.ModelMismatch),
}


@pytest.mark.parametrize(("changes", "reason"), BAD_REQUESTS.values(), ids=BAD_REQUESTS.keys())
async def test_bad_request_is_refused_by_name(
    stub: RerankServiceStub,
    fingerprint: str,
    changes: dict[str, Any],
    reason: type[errors.TandemError],
) -> None:
    """Each fault has its own error, and its code."""
    message = request(**{"item_ids": ["i-0"], "fingerprint": fingerprint, **changes})

    code, error = await refusal(stub, message)

    assert type(error) is reason
    assert code is grpc.StatusCode[reason.status]


@pytest.mark.parametrize("item_id", ["t-foreign", "t-endless"])
async def test_stored_text_that_the_model_cannot_read_is_named_before_it_fails(
    stub: RerankServiceStub, fingerprint: str, tiny_manifest: Manifest, item_id: str
) -> None:
    """The store takes what it is given; the model would fail for everyone in the batch."""
    _, error = await refusal(stub, request([item_id], fingerprint, image_tokens(1, tiny_manifest)))

    assert isinstance(error, errors.TokensInvalid)


async def test_an_item_of_the_querys_modality_is_named(
    stub: RerankServiceStub, fingerprint: str
) -> None:
    """Callers of ScoreDocuments send ids, and tokens that encoder_svc returned they have not."""
    _, error = await refusal(stub, request(["i-0", "t-short"], fingerprint))

    assert isinstance(error, errors.TokensInvalid)
    assert "item 't-short' has the query's modality" in error.message
    assert "send items of the other modality" in error.message


async def test_an_incomplete_query_is_refused(stub: RerankServiceStub, fingerprint: str) -> None:
    """Bytes that are not a whole number of tokens, and NaN among image tokens."""
    message = request(["i-0"], fingerprint)
    message.query.text.ids = b"\1\2\3"
    _, error = await refusal(stub, message)
    assert isinstance(error, errors.TokensInvalid)

    values = np.full((49, 32), np.nan, dtype=np.float16).tobytes()
    image = content_pb2.ImageTokens(values=values, token_count=49, width=32)
    message.query.CopyFrom(content_pb2.ContentTokens(image=image))
    _, error = await refusal(stub, message)
    assert isinstance(error, errors.TokensInvalid)


async def test_index_of_another_model_is_refused_naming_both(
    stub: RerankServiceStub, fingerprint: str
) -> None:
    """Whichever of query and served model is not the index's."""
    last_year = "model-of-last-year"
    for claimed in (fingerprint, last_year):
        _, error = await refusal(stub, request(["i-0"], claimed, index_id=OTHER_MODEL_INDEX_ID))

        assert error.metadata == {
            "request_fingerprint": fingerprint,
            "index_fingerprint": last_year,
        }


async def test_before_the_store_exists_the_service_waits(
    tiny_served: ServedModel, tmp_path: Path, fingerprint: str
) -> None:
    """check() raises a retryable error, and a call that comes too early gets the same one."""
    path = tmp_path / "shard"
    with ThreadPoolExecutor(1) as threads:
        reranker = ModelReranker(
            tiny_served,
            lambda: ItemStore.open(path, 0, 1, readonly=True, map_bytes=MAP_BYTES),
            CallerTurns(threads, 1),
        )
        with pytest.raises(errors.ServiceUnavailable):
            await reranker.check()
        ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES).close()

        await reranker.check()

        reranker.close()
    async with served(tiny_served, path, warm=False) as stub:
        code, error = await refusal(stub, request(["i-0"], fingerprint))
    assert code is grpc.StatusCode.UNAVAILABLE
    assert isinstance(error, errors.ServiceUnavailable)


async def test_without_triton_the_model_is_unavailable(
    tiny_manifest: Manifest, tmp_path: Path
) -> None:
    """A call fails soon and by name, and so does the canary."""
    [port] = free_ports(1)
    triton = TritonClient(f"127.0.0.1:{port}")
    model = ServedModel(triton, tiny_manifest)
    try:
        with ThreadPoolExecutor(2) as threads:
            write_store(tmp_path / "shard", tiny_manifest)
            store = ItemStore.open(tmp_path / "shard", 0, 1, readonly=True, map_bytes=MAP_BYTES)
            reranker = ModelReranker(model, lambda: store, CallerTurns(threads, 2))
            with pytest.raises(errors.ModelUnavailable):
                await asyncio.wait_for(reranker.check(), 60)
            scoring = reranker.score(
                INDEX_ID,
                tiny_manifest.fingerprint,
                [Candidates(QUERY, ["i-0"])],
                TIMEOUT_SECONDS,
            )
            with pytest.raises(errors.ModelUnavailable):
                await asyncio.wait_for(scoring, 60)
            reranker.close()
    finally:
        await triton.close()
