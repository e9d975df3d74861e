"""ScoreBatch: several queries of one index whose pairs share batches, each failing alone."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from tandem import errors
from tandem.chassis.calls.status import error_from_rpc
from tandem.contract.content import Tokens
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.repository.manifest import JOINT_ENCODER, Manifest
from tandem.v1 import error_reason_pb2
from tandem.v1 import rerank_service_pb2 as pb
from tandem.v1.rerank_service_pb2_grpc import RerankServiceStub
from tandem.wire import tokens_to_proto
from tests.support.rerank_svc.served_reranker import (
    INDEX_ID,
    QUERY,
    TIMEOUT_SECONDS,
    served,
    text_tokens,
    write_store,
)
from tests.support.triton.metrics import Counts


@pytest.fixture(scope="module")
def store_path(tmp_path_factory: pytest.TempPathFactory, tiny_manifest: Manifest) -> Path:
    return write_store(tmp_path_factory.mktemp("batch") / "shard", tiny_manifest)


@pytest_asyncio.fixture(scope="module", params=[0, 1 << 20], ids=["no cache", "cache"])
async def stub(
    tiny_served: ServedModel, store_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[RerankServiceStub]:
    async with served(tiny_served, store_path, cache_bytes=request.param) as stub:
        yield stub


def query(item_ids: Sequence[str], tokens: Tokens | None = QUERY) -> pb.QueryCandidates:
    return pb.QueryCandidates(query=tokens_to_proto(tokens) if tokens else None, item_ids=item_ids)


def batch(
    manifest: Manifest, *queries: pb.QueryCandidates, index_id: str = INDEX_ID
) -> pb.ScoreBatchRequest:
    return pb.ScoreBatchRequest(
        index_id=index_id, model_fingerprint=manifest.fingerprint, queries=queries
    )


def reasons(response: pb.ScoreBatchResponse) -> list[str]:
    """Returns what became of each query: "" where it was scored, else the reason."""
    return [
        error_reason_pb2.ErrorReason.Name(result.error.reason).removeprefix("ERROR_REASON_")
        if result.HasField("error")
        else ""
        for result in response.results
    ]


async def test_queries_share_a_batch(
    tiny_served: ServedModel, tiny_manifest: Manifest, tmp_path: Path
) -> None:
    """Twelve pairs of four queries are one request to the model; alone they are four."""
    async with served(tiny_served, write_store(tmp_path / "shard", tiny_manifest)) as stub:
        before = Counts.asked(JOINT_ENCODER)
        queries = [query([f"i-{n}" for n in range(3)], text_tokens(2, 10 + n, 3)) for n in range(4)]

        response = await stub.ScoreBatch(batch(tiny_manifest, *queries))

        assert Counts.asked(JOINT_ENCODER).since(before) == Counts(12, 1)
        assert response.cost.pair_count == 12

        before = Counts.asked(JOINT_ENCODER)
        for each in queries:
            await stub.ScoreBatch(batch(tiny_manifest, each))
        assert Counts.asked(JOINT_ENCODER).since(before) == Counts(12, 4)


async def test_a_query_that_cannot_be_scored_fails_alone(
    stub: RerankServiceStub, tiny_manifest: Manifest
) -> None:
    """The error names it, whatever is wrong with it; the other queries are scored."""
    response = await stub.ScoreBatch(
        batch(
            tiny_manifest,
            query(["i-0"]),
            query(["i-0"], None),
            query([]),
            query(["i-0"] * 1_001),
            query(["a\0b"]),
            query(["i-0", "t-short"]),
            query(["i-narrow"]),
            query(["i-0"], text_tokens(2, 10**6, 3)),
            query(["i-1"]),
        )
    )

    assert reasons(response) == [
        "", "TOKENS_INVALID", "BATCH_SIZE_OUT_OF_RANGE", "BATCH_SIZE_OUT_OF_RANGE",
        "ITEM_ID_INVALID", "TOKENS_INVALID", "TOKENS_INVALID", "TOKENS_INVALID", "",
    ]  # fmt: skip
    assert [len(result.scores) for result in response.results] == [1, 0, 0, 0, 0, 0, 0, 0, 1]
    assert all(
        ";" in result.error.message or "instead" in result.error.message
        for result in response.results
        if result.HasField("error")
    )


async def test_queries_that_all_fail_call_no_model(
    stub: RerankServiceStub, tiny_manifest: Manifest
) -> None:
    """Not even which index they are of."""
    message = batch(tiny_manifest, query([]), query(["i-0"], None), index_id="absent")

    response = await stub.ScoreBatch(message)

    assert reasons(response) == ["BATCH_SIZE_OUT_OF_RANGE", "TOKENS_INVALID"]
    assert not response.cost.pair_count


@pytest.mark.parametrize(
    ("sizes", "index_id", "reason"),
    [
        ([], INDEX_ID, errors.BatchSizeOutOfRange),
        ([1] * 65, INDEX_ID, errors.BatchSizeOutOfRange),
        ([200] * 5 + [25], INDEX_ID, errors.BatchSizeOutOfRange),
        ([1], "../etc", errors.IndexIdInvalid),
        ([1], "absent", errors.IndexNotFound),
    ],
    ids=["no query", "65 queries", "1,025 pairs", "bad index", "no such index"],
)
async def test_a_batch_that_is_wrong_as_a_whole_is_refused(
    stub: RerankServiceStub,
    tiny_manifest: Manifest,
    sizes: list[int],
    index_id: str,
    reason: type[errors.TandemError],
) -> None:
    queries = [query([f"i-{number}" for number in range(size)]) for size in sizes]

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ScoreBatch(batch(tiny_manifest, *queries, index_id=index_id))

    assert type(error_from_rpc(caught.value, "rerank")) is reason


async def test_the_largest_batch_is_scored(
    stub: RerankServiceStub, tiny_manifest: Manifest
) -> None:
    """64 queries of 16 candidates are 1,024 pairs."""
    queries = [
        query([f"i-{number}" for number in range(16)], text_tokens(2, 50 + seed, 3))
        for seed in range(64)
    ]

    response = await stub.ScoreBatch(batch(tiny_manifest, *queries), timeout=TIMEOUT_SECONDS)

    assert reasons(response) == [""] * 64
    assert response.cost.pair_count == 1_024
