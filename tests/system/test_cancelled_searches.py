"""A search that its caller gave up costs no more of the cross-encoder than was under way."""

import itertools
import time
from collections.abc import Iterator

import grpc

from tandem.corpus.records import Record
from tandem.local.stack import LocalStack
from tandem.model_io.manifest import JOINT_ENCODER
from tandem.v1 import content_pb2
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.model_io.triton_metrics import STACK_CANARY_COUNT, Counts

SEARCH_COUNT = 16
DEPTH = 60
TRIES = 3


def test_cancelled_searches_leave_most_pairs_unread(
    stack: LocalStack, scenes_index: str, records: list[Record]
) -> None:
    """Sixteen at once, cancelled soon: Triton reads a small part of what it would have read.

    The positive control is in the test: the same without being cancelled is read wholly.
    """
    # Other texts each time: an equal one's scores are kept.
    texts = iter({c.text for record in records for c in record.captions if c.language == "de"})
    whole = _pairs_read(stack, scenes_index, texts, is_cancelled=False)
    # On a busy machine a cancellation may itself come late; that it comes late each time, and that
    # it has no effect, which every one of them would show, is not the same.
    parts = [_pairs_read(stack, scenes_index, texts, is_cancelled=True) for _ in range(TRIES)]

    print(f"{parts} rows after cancelling, {whole} without")
    assert whole >= SEARCH_COUNT * DEPTH
    assert min(parts) <= whole / 2


def _pairs_read(
    stack: LocalStack, index_id: str, texts: Iterator[str], *, is_cancelled: bool
) -> float:
    """Returns how many rows the joint encoder took for the searches, at rest."""
    before = _at_rest(stack)
    with grpc.insecure_channel(stack.address) as channel:
        stub = SearchServiceStub(channel)
        calls = [
            stub.SearchItems.future(
                pb.SearchItemsRequest(
                    index_id=index_id,
                    query=content_pb2.Content(text=text),
                    retrieve_k=DEPTH,
                    rerank_k=DEPTH,
                ),
                timeout=30,
            )
            for text in itertools.islice(texts, SEARCH_COUNT)
        ]
        if is_cancelled:
            time.sleep(0.05)
            for call in calls:
                call.cancel()
        else:
            assert all(call.result().rerank.reranked_depth == DEPTH for call in calls)
    return _at_rest(stack).since(before).inferences


def _at_rest(stack: LocalStack) -> Counts:
    return Counts.at_rest(stack.metrics_url("triton"), JOINT_ENCODER, STACK_CANARY_COUNT)
