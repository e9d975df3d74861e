"""Requests of different users share executions of the model."""

import threading
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc
from prometheus_client.parser import text_string_to_metric_families

from tandem.cli.stack import LocalStack
from tandem.client import Client
from tandem.v1 import content_pb2, encoder_service_pb2
from tandem.v1.encoder_service_pb2_grpc import EncoderServiceStub

CLIENT_COUNT = 16
CALL_COUNT = 40  # each
SEARCH_COUNT = 20  # each: with few, the clients' coming and going is most of what is counted
TEXT = "two dogs left of one umbrella"


def test_sixteen_searching_clients_fill_the_batches(stack: LocalStack, scenes_index: str) -> None:
    """Rows an execution, above 4 and well above what one client's own pairs make of it."""
    alone = _rows_an_execution(stack, lambda: _search(stack, scenes_index))

    together = _rows_an_execution(stack, lambda: _from_all(lambda: _search(stack, scenes_index)))

    assert together > 4
    assert together > 2 * alone


def test_sixteen_clients_share_executions(stack: LocalStack) -> None:
    """One text a call, so that only Triton's batcher can raise inferences above executions."""
    assert _rows_an_execution(stack, lambda: _from_all(lambda: _encode(stack))) > 2


def test_one_client_does_not(stack: LocalStack) -> None:
    """Positive control: the ratio tells batching from its absence."""
    assert _rows_an_execution(stack, lambda: _encode(stack)) < 1.5


def _search(stack: LocalStack, index_id: str) -> None:
    with Client(stack.address, timeout_seconds=30.0) as client:
        for _ in range(SEARCH_COUNT):
            assert client.search(TEXT, index_id=index_id).items


def _encode(stack: LocalStack) -> None:
    content = content_pb2.Content(text=TEXT)
    request = encoder_service_pb2.EncodeContentsRequest(contents=[content])
    with grpc.insecure_channel(stack.address_of("encoder")) as channel:
        stub = EncoderServiceStub(channel)
        for _ in range(CALL_COUNT):
            assert stub.EncodeContents(request, timeout=30).results[0].HasField("encoding")


def _from_all(client: Callable[[], None]) -> None:
    together = threading.Barrier(CLIENT_COUNT)

    def start_together(_: int) -> None:
        together.wait(timeout=20)
        client()

    with ThreadPoolExecutor(CLIENT_COUNT) as clients:
        list(clients.map(start_together, range(CLIENT_COUNT)))


def _rows_an_execution(stack: LocalStack, work: Callable[[], None]) -> float:
    """Returns how many rows the joint encoder took at a time during `work`."""
    before = _inferences_and_executions(stack)
    work()
    after = _inferences_and_executions(stack)
    return (after[0] - before[0]) / (after[1] - before[1])


def _inferences_and_executions(stack: LocalStack) -> tuple[float, float]:
    with urllib.request.urlopen(stack.metrics_url("triton"), timeout=5) as response:
        text = response.read().decode()
    values = {
        family.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("model") == "joint_encoder"
        and family.name in ("nv_inference_count", "nv_inference_exec_count")
    }
    return values["nv_inference_count"], values["nv_inference_exec_count"]
