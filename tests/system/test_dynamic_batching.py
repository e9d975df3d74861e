"""Requests of different users share executions of the model."""

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc

from tandem.cli.stack import LocalStack
from tandem.client import Client
from tandem.model_io.manifest import JOINT_ENCODER
from tandem.v1 import content_pb2, encoder_service_pb2
from tandem.v1.encoder_service_pb2_grpc import EncoderServiceStub
from tests.model_io.triton_metrics import STACK_CANARY_COUNT, Counts

CLIENT_COUNT = 16
CALL_COUNT = 40  # each
ROUND_COUNT = 5  # at most
SEARCH_COUNT = 20  # each: with few, the clients' coming and going is most of what is counted
TEXT = "two dogs left of one umbrella"
_COUNTS = ("one", "two", "three", "four")
_NOUNS = ("dog", "cat", "umbrella", "car", "house", "tree", "ball", "fish", "bird", "cup")
_TEXTS = (
    f"{left} {first}s left of {right} {second}s"
    for first, second in itertools.permutations(_NOUNS, 2)
    for left, right in itertools.product(_COUNTS, repeat=2)
)


def test_sixteen_searching_clients_fill_the_batches(stack: LocalStack, scenes_index: str) -> None:
    """Rows an execution, above 4 and well above what one client's own pairs make of it.

    One client's are of 8 to 10 rows, halves of its pairs, now that canaries, of one row each, spare
    a model that answers; the largest batch has 24.
    """
    alone = _rows_an_execution(stack, lambda: _search(stack, scenes_index))

    together = _rows_an_execution(stack, lambda: _from_all(lambda: _search(stack, scenes_index)))

    assert together > 4
    assert together > 1.25 * alone


def test_sixteen_clients_share_executions(stack: LocalStack) -> None:
    """One text a call, so that only Triton's batcher can raise inferences above executions.

    Nothing waits for company (decision 23), and encoder_svc sends what two instances almost keep up
    with: few go together, the fewer the less of a core other work leaves encoder_svc. So it may
    take some rounds to see; without the batcher the ratio is 1 however many there are.
    """
    rounds = (
        _rows_an_execution(stack, lambda: _from_all(lambda: _encode(stack)))
        for _ in range(ROUND_COUNT)
    )
    assert any(ratio > 1.3 for ratio in rounds)


def test_one_client_does_not(stack: LocalStack) -> None:
    """Positive control: the ratio tells batching from its absence."""
    assert _rows_an_execution(stack, lambda: _encode(stack)) < 1.1


def _search(stack: LocalStack, index_id: str) -> None:
    with Client(stack.address, timeout_seconds=30.0) as client:
        for _ in range(SEARCH_COUNT):
            # Another text each time: an equal one's encoding and scores are kept.
            assert client.search(next(_TEXTS), index_id=index_id).items


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
    before = _at_rest(stack)
    work()
    counts = _at_rest(stack).since(before)
    return counts.inferences / counts.executions


def _at_rest(stack: LocalStack) -> Counts:
    return Counts.at_rest(stack.metrics_url("triton"), JOINT_ENCODER, STACK_CANARY_COUNT)
