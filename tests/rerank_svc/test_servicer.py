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
from tandem.contract.deadline import Deadline
from tandem.local.item_store.item_store import ItemStore
from tandem.local.reranking.candidate_reader import CandidateReader
from tandem.local.reranking.reranker import ModelReranker
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.repository.manifest import Manifest
from tandem.stack.free_ports import free_ports
from tandem.stages.reranking import Candidates, ScoreQuery
from tandem.triton.client import TritonClient
from tandem.v1 import content_pb2
from tandem.v1 import rerank_service_pb2 as pb
from tandem.v1.rerank_service_pb2_grpc import (
    RerankServiceStub,
)
from tests.support.rerank_svc.served_reranker import (
    INDEX_ID,
    MAP_BYTES,
    QUERY,
    TIMEOUT_SECONDS,
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
    "too many items": ({"item_ids": ["i-0"] * 1_001}, errors.BatchSizeOutOfRange),
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


async def test_before_the_store_exists_the_service_waits(
    tiny_served: ServedModel, tmp_path: Path, fingerprint: str
) -> None:
    """check() raises a retryable error, and a call that comes too early gets the same one."""
    path = tmp_path / "shard"
    with ThreadPoolExecutor(1) as threads:
        turns = CallerTurns(threads, 1)
        candidates = CandidateReader(
            lambda: ItemStore.open(path, 0, 1, readonly=True, map_bytes=MAP_BYTES),
            turns,
            fingerprint,
        )
        reranker = ModelReranker(tiny_served, candidates, turns)
        with pytest.raises(errors.ServiceUnavailable):
            await reranker.check()
        ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES).close()

        await reranker.check()

        await candidates.close()
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
            turns = CallerTurns(threads, 2)
            candidates = CandidateReader(lambda: store, turns, tiny_manifest.fingerprint)
            reranker = ModelReranker(model, candidates, turns)
            with pytest.raises(errors.ModelUnavailable):
                await asyncio.wait_for(reranker.check(), 60)
            scoring = reranker.score(
                ScoreQuery(INDEX_ID, tiny_manifest.fingerprint),
                [Candidates(QUERY, ["i-0"])],
                Deadline.after(TIMEOUT_SECONDS),
            )
            with pytest.raises(errors.ModelUnavailable):
                await asyncio.wait_for(scoring, 60)
            store.close()
    finally:
        await triton.close()
