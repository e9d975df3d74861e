"""A query walks encode, search, rerank through real processes."""

import urllib.request

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from tandem.client import Client, SearchResult
from tandem.contract.content import ImageContent, Modality, TextContent
from tandem.corpus.records import Record
from tandem.stack.stack import LocalStack


def test_a_text_finds_pictures(client: Client, scenes_index: str, records: list[Record]) -> None:
    """A caption's own family fills the first places, and every number of the reply is coherent."""
    record = records[0]

    result = client.search(record.captions[0].text, index_id=scenes_index, content_included=True)

    families = [item.item_id.rpartition("-")[0] for item in result.items[:4]]
    assert families.count(record.family) >= 3
    assert all(isinstance(item.content, ImageContent) for item in result.items)
    _check_coherent(result)


def test_pictures_find_their_texts(
    client: Client, scenes_index: str, records: list[Record]
) -> None:
    """The other direction, reranked too: one of its own captions comes first for most pictures.

    By chance it would for one in sixty, and for one in four that finds the family and no more.
    """
    found = 0
    for record in records[::3]:
        result = client.search(record.image.read(), index_id=scenes_index, content_included=True)
        found += result.items[0].item_id in {caption.caption_id for caption in record.captions}
        assert all(isinstance(item.content, TextContent) for item in result.items)
        _check_coherent(result)

    assert found > len(records[::3]) / 2


def test_the_tail_keeps_retrieval_order(client: Client, scenes_index: str) -> None:
    """Items that the cross-encoder did not score stand behind those it did, in their order."""
    result = client.search(
        "two dogs left of one umbrella",
        index_id=scenes_index,
        retrieve_k=30,
        rerank_k=5,
        return_n=30,
    )

    assert [item.match_logit is not None for item in result.items] == [True] * 5 + [False] * 25
    assert [item.retrieve_rank for item in result.items[5:]] == list(range(6, 31))


def test_without_reranking_the_order_is_retrievals(client: Client, scenes_index: str) -> None:
    """The caller may leave the cross-encoder out."""
    result = client.search("one cat", index_id=scenes_index, rerank_disabled=True)

    assert [item.retrieve_rank for item in result.items] == list(range(1, 11))
    assert all(item.match_logit is None for item in result.items)
    assert result.seconds.rerank == 0.0


def test_like_finds_like_without_a_cross_encoder(
    client: Client, scenes_index: str, records: list[Record]
) -> None:
    """Picture to picture is retrieval alone: the picture itself comes first, unscored."""
    record = records[8]

    result = client.search(
        record.image.read(), index_id=scenes_index, target_modality=Modality.IMAGE
    )

    assert result.items[0].item_id == record.record_id
    assert result.items[0].similarity == pytest.approx(1.0, abs=1e-4)
    assert result.items[0].match_logit is None


def test_every_service_tells_of_itself(
    stack: LocalStack, client: Client, scenes_index: str
) -> None:
    """Health says SERVING, reflection lists the service, /metrics has a stage histogram."""
    client.search("one cat", index_id=scenes_index)
    for endpoint in stack.endpoints():
        if endpoint.name == "triton":
            continue
        with grpc.insecure_channel(endpoint.address) as channel:
            health = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=5
            )
            assert health.status == health_pb2.HealthCheckResponse.SERVING
            assert any(name.startswith("tandem.v1.") for name in _services(channel))
        stages = _stage_counts(endpoint.metrics_url)
        assert stages, f"{endpoint.name} observed no stage"


def _check_coherent(result: SearchResult) -> None:
    logits = [item.match_logit for item in result.items]
    assert logits == sorted(logits, key=lambda logit: -(logit or 0.0))
    assert [item.final_rank for item in result.items] == list(range(1, len(result.items) + 1))
    by_similarity = sorted(result.items, key=lambda item: item.retrieve_rank)
    similarities = [item.similarity for item in by_similarity]
    assert similarities == sorted(similarities, reverse=True)
    seconds = result.seconds
    stages = seconds.encode + seconds.retrieve + seconds.rerank + seconds.fetch + seconds.rank
    assert min(seconds.encode, seconds.retrieve, seconds.rerank, seconds.fetch) > 0
    assert seconds.total == pytest.approx(stages, abs=2e-3)


def _services(channel: grpc.Channel) -> list[str]:
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    [response] = stub.ServerReflectionInfo(iter([request]), timeout=60)
    return [service.name for service in response.list_services_response.service]


def _stage_counts(url: str) -> dict[str, float]:
    with urllib.request.urlopen(url, timeout=60) as response:
        text = response.read().decode()
    return {
        sample.labels["stage"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.endswith("_stage_duration_seconds_count") and sample.value > 0
    }
