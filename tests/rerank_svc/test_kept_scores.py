"""Match logits that are kept: equal to computed ones, computed once, and accounted for."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import pytest_asyncio

from tandem.chassis.access.callers import CALLER_KEY
from tandem.chassis.capacity.caller_turns import CallerTurns
from tandem.chassis.telemetry.metrics import REGISTRY
from tandem.contract.inference_cost import COST_WIRE, InferenceCost
from tandem.contract.model_description import ProbabilityCalibration
from tandem.local.item_store.item_store import ItemStore
from tandem.local.reranking.candidate_reader import CandidateReader
from tandem.local.reranking.reranker import ModelReranker
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.repository.manifest import JOINT_ENCODER, Manifest
from tandem.v1 import rerank_service_pb2 as pb
from tandem.v1.rerank_service_pb2_grpc import RerankServiceStub
from tests.support.rerank_svc.served_reranker import (
    MAP_BYTES,
    TIMEOUT_SECONDS,
    request,
    served,
    serving,
    text_tokens,
    write_store,
)
from tests.support.triton.metrics import Counts

COUNTERS = {
    "pair_count": "tandem_rerank_pairs_scored_total",
    "token_count": "tandem_inference_tokens_total",
    "padded_token_count": "tandem_inference_padded_tokens_total",
    "cache_hit_count": "tandem_cache_hits_total",
    "cache_miss_count": "tandem_cache_misses_total",
    "triton_queue_seconds": "tandem_inference_triton_queue_seconds_total",
    "triton_compute_seconds": "tandem_inference_triton_compute_seconds_total",
}
LABELS: dict[str, dict[str, str]] = {"pair": {}, "cache": {"cache": "match_logits"}}

# Fewer than are divided between the model's instances.
PAIR_COUNT = 12


@pytest.fixture(scope="module")
def store_path(tmp_path_factory: pytest.TempPathFactory, tiny_manifest: Manifest) -> Path:
    return write_store(tmp_path_factory.mktemp("kept") / "shard", tiny_manifest)


@pytest_asyncio.fixture
async def stub(tiny_served: ServedModel, store_path: Path) -> AsyncIterator[RerankServiceStub]:
    """Of a service whose cache is empty."""
    async with served(tiny_served, store_path, cache_bytes=1 << 20) as stub:
        yield stub


async def score(
    stub: RerankServiceStub,
    manifest: Manifest,
    item_ids: Sequence[str],
    query: int = 10,
    caller: str = "team",
) -> pb.ScoreCandidatesResponse:
    message = request(item_ids, manifest.fingerprint, text_tokens(2, query, 3))
    response: pb.ScoreCandidatesResponse = await stub.ScoreCandidates(
        message, timeout=TIMEOUT_SECONDS, metadata=((CALLER_KEY, caller),)
    )
    return response


def counters() -> dict[str, float]:
    """Returns the server's counters, by the names of a cost's fields."""
    return {
        field: REGISTRY.get_sample_value(
            name, LABELS.get(field.partition("_")[0], {"service": "rerank"})
        )
        or 0.0
        for field, name in COUNTERS.items()
    }


async def test_a_repeated_search_reads_nothing_again(
    stub: RerankServiceStub, tiny_manifest: Manifest
) -> None:
    """Bit for bit the same scores, out of the cache; what is new in it is computed alone."""
    cold = await score(stub, tiny_manifest, ["i-0", "i-1", "gone"])

    warm = await score(stub, tiny_manifest, ["i-1", "gone", "i-0"])
    wider = await score(stub, tiny_manifest, ["i-0", "i-2"])

    assert [warm.scores[place] for place in (2, 0, 1)] == list(cold.scores)
    assert COST_WIRE.from_proto(cold.cost).cache_miss_count == 2
    assert COST_WIRE.from_proto(warm.cost) == InferenceCost(cache_hit_count=2)
    assert wider.scores[0] == cold.scores[0]
    assert (wider.cost.pair_count, wider.cost.cache_hit_count) == (1, 1)


async def test_cost_does_not_depend_on_other_callers(
    stub: RerankServiceStub, tiny_manifest: Manifest
) -> None:
    """Another caller's equal search costs what it costs alone; its scores are the same."""
    first = await score(stub, tiny_manifest, ["i-0", "i-1"])

    others = await score(stub, tiny_manifest, ["i-0", "i-1"], caller="other team")

    assert others.scores == first.scores
    assert (others.cost.cache_hit_count, others.cost.pair_count) == (0, 2)


async def test_fifty_concurrent_searches_cost_one_batch(
    stub: RerankServiceStub, tiny_manifest: Manifest
) -> None:
    """One request to the model, of as many rows as there are candidates."""
    item_ids = [f"i-{number}" for number in range(PAIR_COUNT)]
    before = Counts.asked(JOINT_ENCODER)

    responses = await asyncio.gather(*(score(stub, tiny_manifest, item_ids) for _ in range(50)))

    assert Counts.asked(JOINT_ENCODER).since(before) == Counts(PAIR_COUNT, 1)
    assert all(response.scores == responses[0].scores for response in responses)
    assert sum(response.cost.pair_count for response in responses) == PAIR_COUNT


async def test_without_a_cache_each_costs_its_own(
    tiny_served: ServedModel, tiny_manifest: Manifest, store_path: Path
) -> None:
    """Positive control: the count tells sharing from its absence."""
    item_ids = [f"i-{number}" for number in range(20)]
    async with served(tiny_served, store_path) as stub:
        before = Counts.asked(JOINT_ENCODER)

        responses = await asyncio.gather(*(score(stub, tiny_manifest, item_ids) for _ in range(5)))

    assert Counts.asked(JOINT_ENCODER).since(before).inferences == 100
    assert sum(response.cost.pair_count for response in responses) == 100


async def test_costs_of_all_replies_add_up_to_the_counters(
    stub: RerankServiceStub, tiny_manifest: Manifest
) -> None:
    """Exactly, with searches that overlap, repeat and run at once; the model was asked for them."""
    rows_before = Counts.asked(JOINT_ENCODER)
    before = counters()

    responses = await asyncio.gather(
        *(
            score(stub, tiny_manifest, [f"i-{start + n}" for n in range(10)], query=10 + query)
            for query in range(4)
            for start in (0, 5, 0, 20, 90)
        )
    )
    responses.append(await score(stub, tiny_manifest, ["i-0", "i-150"], query=10))

    added = {name: value - before[name] for name, value in counters().items()}
    total = sum((COST_WIRE.from_proto(response.cost) for response in responses), InferenceCost())
    for name in COUNTERS:
        # Seconds go through a protobuf in whole nanoseconds, one rounding a reply.
        tolerance = 1e-9 * len(responses) if name.endswith("seconds") else 0
        assert abs(added[name] - (getattr(total, name) or 0.0)) <= tolerance, name
    assert total.pair_count == total.cache_miss_count == 4 * 35 + 1
    assert total.cache_hit_count == 4 * 15 + 1
    assert total.token_count == total.pair_count * (3 + tiny_manifest.image_token_count)
    assert total.padded_token_count > total.token_count
    assert total.triton_compute_seconds is not None
    assert total.triton_compute_seconds > 0
    assert Counts.asked(JOINT_ENCODER).since(rows_before).inferences == total.pair_count


async def test_probabilities_follow_the_calibration(
    tiny_served: ServedModel, tiny_manifest: Manifest, store_path: Path
) -> None:
    """Of kept logits and computed ones alike; logits are as without it."""
    calibration = ProbabilityCalibration(scale=0.5, bias=-2.0)
    with ThreadPoolExecutor(1) as threads:
        store = ItemStore.open(store_path, 0, 1, readonly=True, map_bytes=MAP_BYTES)
        turns = CallerTurns(threads, 1)
        reranker = ModelReranker(
            tiny_served,
            CandidateReader(lambda: store, turns, tiny_manifest.fingerprint),
            turns,
            cache_bytes=1 << 20,
            calibration_of=lambda _: calibration,
        )
        async with serving(reranker) as stub:
            for _ in range(2):
                [found] = (await score(stub, tiny_manifest, ["i-0"])).scores
                expected = calibration.probability(found.match_logit)
                assert found.match_probability == pytest.approx(expected, abs=1e-6)
                assert expected < 0.45
        store.close()
