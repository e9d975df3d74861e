"""Queries' encodings are kept, made once, accounted for, and there while the model is not."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from tandem.chassis.access.callers import CALLER_KEY
from tandem.chassis.calls.status import error_from_rpc
from tandem.chassis.capacity.caller_turns import CallerTurns
from tandem.chassis.telemetry.metrics import REGISTRY
from tandem.contract.content import Content, ImageContent, TextContent, TruncationPolicy
from tandem.contract.inference_cost import COST_WIRE, InferenceCost
from tandem.contract.search.answer_wire import content_to_proto
from tandem.errors import ModelUnavailable
from tandem.local.encoding.encoder import ModelEncoder
from tandem.local.encoding.query_encodings import QueryEncodings
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.inference.served_texts import ServedTexts
from tandem.model_io.repository.manifest import JOINT_ENCODER, Manifest
from tandem.triton.client import TritonClient
from tandem.v1 import content_pb2
from tandem.v1 import encoder_service_pb2 as pb
from tandem.v1.encoder_service_pb2_grpc import EncoderServiceStub
from tests.encoder_svc.test_servicer import TIMEOUT_SECONDS, reasons, served_channel
from tests.support.pictures.pictures import encoded, noise
from tests.support.triton.metrics import Counts
from tests.support.triton.tiny_triton import serving

DOGS, CAT = TextContent("two dogs"), TextContent("a red cat")
LONG = TextContent("two dogs left of one umbrella " * 20)
COUNTERS: dict[str, tuple[str, dict[str, str]]] = {
    "token_count": ("tandem_inference_tokens_total", {"service": "encoder"}),
    "padded_token_count": ("tandem_inference_padded_tokens_total", {"service": "encoder"}),
    "cache_hit_count": ("tandem_cache_hits_total", {"cache": "query_encodings"}),
    "cache_miss_count": ("tandem_cache_misses_total", {"cache": "query_encodings"}),
    "triton_queue_seconds": (
        "tandem_inference_triton_queue_seconds_total",
        {"service": "encoder"},
    ),
    "triton_compute_seconds": (
        "tandem_inference_triton_compute_seconds_total",
        {"service": "encoder"},
    ),
}


@pytest.fixture(scope="module")
def served_texts(tiny_repository: Path, tiny_manifest: Manifest) -> ServedTexts:
    return ServedTexts.open(tiny_repository, tiny_manifest)


@pytest_asyncio.fixture
async def stub(
    tiny_served: ServedModel, served_texts: ServedTexts
) -> AsyncIterator[EncoderServiceStub]:
    """Of a service whose cache is empty."""
    async with served_channel(tiny_served, served_texts, cache_bytes=1 << 20) as channel:
        yield EncoderServiceStub(channel)


async def ask(
    stub: EncoderServiceStub,
    *contents: Content,
    purpose: pb.EncodePurpose = pb.ENCODE_PURPOSE_QUERY,
    policy: content_pb2.TruncationPolicy = content_pb2.TRUNCATION_POLICY_ERROR,
    caller: str = "team",
) -> pb.EncodeContentsResponse:
    response: pb.EncodeContentsResponse = await stub.EncodeContents(
        pb.EncodeContentsRequest(
            contents=map(content_to_proto, contents), purpose=purpose, truncation_policy=policy
        ),
        timeout=TIMEOUT_SECONDS,
        metadata=((CALLER_KEY, caller),),
    )
    return response


def counters() -> dict[str, float]:
    return {
        field: REGISTRY.get_sample_value(name, labels) or 0.0
        for field, (name, labels) in COUNTERS.items()
    }


async def test_a_query_is_encoded_once(stub: EncoderServiceStub) -> None:
    """The second answer is the first, bit for bit, of texts and images; what is new is made."""
    picture = ImageContent(encoded(noise(1), "PNG"))
    cold = await ask(stub, DOGS, picture)

    warm = await ask(stub, picture, DOGS)
    wider = await ask(stub, DOGS, CAT)

    assert list(warm.results) == list(reversed(cold.results))
    assert COST_WIRE.from_proto(cold.cost).cache_miss_count == 2
    assert COST_WIRE.from_proto(warm.cost) == InferenceCost(cache_hit_count=2)
    assert wider.results[0] == cold.results[0]
    assert (wider.cost.cache_hit_count, wider.cost.cache_miss_count) == (1, 1)
    assert [cold.model_unavailable, warm.model_unavailable] == [False, False]


async def test_cost_does_not_depend_on_other_callers(stub: EncoderServiceStub) -> None:
    """A text that another caller searched for costs what one costs that nobody searched for."""
    first = await ask(stub, DOGS, caller="team")

    others = await ask(stub, DOGS, caller="other team")
    own = await ask(stub, DOGS, caller="team")

    assert others.results == first.results == own.results
    assert (others.cost.cache_hit_count, others.cost.cache_miss_count) == (0, 1)
    assert others.cost.token_count == first.cost.token_count > 0
    assert COST_WIRE.from_proto(own.cost) == InferenceCost(cache_hit_count=1)


async def test_items_are_not_kept(stub: EncoderServiceStub) -> None:
    """Each is stored, and never requested again."""
    for _ in range(2):
        response = await ask(stub, DOGS, purpose=pb.ENCODE_PURPOSE_INGEST)
        assert response.cost.token_count > 0
        assert response.cost.cache_hit_count == response.cost.cache_miss_count == 0


async def test_one_text_by_two_policies_is_two_encodings(stub: EncoderServiceStub) -> None:
    """What was cut is not what was read by windows, nor what is refused."""
    cut = await ask(stub, LONG, policy=content_pb2.TRUNCATION_POLICY_TRUNCATE)
    windows = await ask(stub, LONG, policy=content_pb2.TRUNCATION_POLICY_BEST_WINDOW)
    refused = await ask(stub, LONG)

    assert not cut.results[0].encoding.further_windows
    assert windows.results[0].encoding.further_windows
    assert reasons(refused) == ["TEXT_TOO_LONG"]
    assert windows.cost.cache_miss_count == 1
    again = await ask(stub, LONG, policy=content_pb2.TRUNCATION_POLICY_BEST_WINDOW)
    assert again.results == windows.results
    assert again.cost.cache_hit_count == 1


async def test_a_refused_query_is_refused_again(stub: EncoderServiceStub) -> None:
    """Errors are not kept; the encodings of the same request are."""
    for miss_count in (2, 1):
        response = await ask(stub, DOGS, TextContent(""))
        assert reasons(response) == ["", "TEXT_EMPTY"]
        assert response.cost.cache_miss_count == miss_count


async def test_fifty_equal_concurrent_queries_are_one_inference(
    stub: EncoderServiceStub,
) -> None:
    """By the requests to the model; the costs of all replies are those of one."""
    before = Counts.asked(JOINT_ENCODER)

    responses = await asyncio.gather(*(ask(stub, DOGS) for _ in range(50)))

    assert Counts.asked(JOINT_ENCODER).since(before) == Counts(1, 1)
    assert all(response.results == responses[0].results for response in responses)
    assert sum(response.cost.cache_miss_count for response in responses) == 1


async def test_without_a_cache_each_costs_its_own(
    tiny_served: ServedModel, served_texts: ServedTexts
) -> None:
    """Positive control: the count tells sharing from its absence."""
    async with served_channel(tiny_served, served_texts) as channel:
        before = Counts.asked(JOINT_ENCODER)

        await asyncio.gather(*(ask(EncoderServiceStub(channel), DOGS) for _ in range(5)))

    assert Counts.asked(JOINT_ENCODER).since(before).inferences == 5


async def test_no_version_of_the_model_answers_with_anothers_encodings(
    tiny_served: ServedModel, served_texts: ServedTexts
) -> None:
    """Triton has no version 2 here, so what version 1 made would be its only answer."""
    version = 1
    with ThreadPoolExecutor(1) as threads:
        turns = CallerTurns(threads, 1)
        encoder = ModelEncoder(tiny_served, served_texts, turns, lambda: version)
        queries = QueryEncodings(encoder, turns, 1 << 20)
        first, again = [
            await queries.encode([DOGS], TIMEOUT_SECONDS, TruncationPolicy.ERROR) for _ in range(2)
        ]
        version = 2
        with pytest.raises(ModelUnavailable):
            await queries.encode([DOGS], TIMEOUT_SECONDS, TruncationPolicy.ERROR)
    assert (first.model_version, again.cost.cache_hit_count) == (1, 1)


async def test_costs_of_all_replies_add_up_to_the_counters(stub: EncoderServiceStub) -> None:
    """Exactly, for queries that overlap and run at once, and items between them."""
    before = counters()
    texts = [TextContent(f"{word} dogs") for word in ("one", "two", "red", "four")]
    picture = ImageContent(encoded(noise(2), "JPEG"))

    responses = await asyncio.gather(
        *(ask(stub, texts[n % 4], texts[(n + 1) % 4], TextContent("")) for n in range(8)),
        *(ask(stub, picture, texts[0]) for _ in range(2)),
        ask(stub, picture, texts[0], purpose=pb.ENCODE_PURPOSE_INGEST),
    )

    added = {name: value - before[name] for name, value in counters().items()}
    total = sum((COST_WIRE.from_proto(response.cost) for response in responses), InferenceCost())
    for name in COUNTERS:
        # Seconds go through a protobuf in whole nanoseconds, one rounding a reply.
        tolerance = 1e-9 * len(responses) if name.endswith("seconds") else 0
        assert abs(added[name] - (getattr(total, name) or 0.0)) <= tolerance, name
    assert total.padded_token_count >= total.token_count > 0


async def test_kept_queries_are_answered_while_the_model_is_down(
    lone_instances: Path, tiny_manifest: Manifest, served_texts: ServedTexts
) -> None:
    """And say so. Others fail by name, in their place where something else is there."""
    with serving(lone_instances) as running, ThreadPoolExecutor(1) as threads:
        triton = TritonClient(running.address)
        model = ServedModel(triton, tiny_manifest)
        turns = CallerTurns(threads, 1)
        idle = QueryEncodings(ModelEncoder(model, served_texts, turns), turns, 1 << 20)
        async with served_channel(model, served_texts, cache_bytes=1 << 20) as channel:
            stub = EncoderServiceStub(channel)
            before = await ask(stub, DOGS)
            told = [await checked(idle)]
            await asyncio.to_thread(running.server.stop)

            mixed = await ask(stub, CAT, DOGS, TextContent(""))
            kept = await ask(stub, DOGS)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await ask(stub, CAT)
            told.append(await checked(idle))

            await asyncio.to_thread(running.server.start)
            for _ in range(200):  # the connection comes back within a second or two
                if reasons(await ask(stub, CAT, DOGS)) == ["", ""]:
                    break
                await asyncio.sleep(0.1)
            after = await ask(stub, DOGS)
            told.append(await checked(idle))
        await triton.close()

    assert reasons(mixed) == ["MODEL_UNAVAILABLE", "", "MODEL_UNAVAILABLE"]
    assert mixed.model_unavailable
    assert kept.results == before.results == after.results
    assert kept.model_unavailable
    assert isinstance(error_from_rpc(caught.value, "encoder"), ModelUnavailable)
    assert [before.model_unavailable, after.model_unavailable] == [False, False]
    # Without new queries the canary finds out.
    assert told == [False, True, False]


async def checked(queries: QueryEncodings) -> bool:
    """Runs the canary, asks for the same text as ever, and returns whether the model is down."""
    with contextlib.suppress(ModelUnavailable):
        await queries.check()
    encoded = await queries.encode([DOGS], TIMEOUT_SECONDS, TruncationPolicy.ERROR)
    return encoded.is_model_unavailable
