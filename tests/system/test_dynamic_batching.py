"""Requests of different users share executions of the model."""

import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import grpc
from prometheus_client.parser import text_string_to_metric_families

from tandem.cli.stack import LocalStack
from tandem.v1 import content_pb2, encoder_service_pb2
from tandem.v1.encoder_service_pb2_grpc import EncoderServiceStub

CLIENT_COUNT = 16
CALL_COUNT = 40  # each


def test_sixteen_clients_share_executions(stack: LocalStack) -> None:
    """One text a call, so that only Triton's batcher can raise inferences above executions."""
    before = _inferences_and_executions(stack)

    _call_from_all(stack.address_of("encoder"))

    after = _inferences_and_executions(stack)
    inferences, executions = after[0] - before[0], after[1] - before[1]
    assert inferences >= CLIENT_COUNT * CALL_COUNT
    assert inferences / executions > 4


def test_one_client_does_not(stack: LocalStack) -> None:
    """Positive control: the ratio tells batching from its absence."""
    before = _inferences_and_executions(stack)

    with grpc.insecure_channel(stack.address_of("encoder")) as channel:
        _call(EncoderServiceStub(channel))

    after = _inferences_and_executions(stack)
    assert (after[0] - before[0]) / (after[1] - before[1]) < 1.5


def _call_from_all(address: str) -> None:
    together = threading.Barrier(CLIENT_COUNT)

    def client(_: int) -> None:
        with grpc.insecure_channel(address) as channel:
            grpc.channel_ready_future(channel).result(timeout=10)
            together.wait(timeout=20)
            _call(EncoderServiceStub(channel))

    with ThreadPoolExecutor(CLIENT_COUNT) as clients:
        list(clients.map(client, range(CLIENT_COUNT)))


def _call(stub: EncoderServiceStub) -> None:
    content = content_pb2.Content(text="two dogs left of one umbrella")
    request = encoder_service_pb2.EncodeContentsRequest(contents=[content])
    for _ in range(CALL_COUNT):
        assert stub.EncodeContents(request, timeout=30).results[0].HasField("encoding")


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
