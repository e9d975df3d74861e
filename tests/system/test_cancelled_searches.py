"""A search that its caller gave up costs no more of the cross-encoder than was in progress."""

from __future__ import annotations

import itertools
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc

from tandem.corpus.records import Record
from tandem.model_io.repository.config_pbtxt import INSTANCE_COUNT, pair_batch_size
from tandem.model_io.repository.manifest import JOINT_ENCODER, read_manifest
from tandem.stack.stack import LocalStack
from tandem.v1 import content_pb2
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.triton.metrics import STACK_CANARY_COUNT, Counts

# Of 24 that an orchestrator admits here.
SEARCH_COUNT = 12
DEPTH = 60
SHARD_COUNT = 2
PATIENCE_SECONDS = 60.0


def test_cancelled_searches_leave_their_unsent_pairs_unread(
    stack: LocalStack, scenes_index: str, records: list[Record], model_repository: Path
) -> None:
    """Judged by what Triton reads once no rerank_svc has a call any more: no more than it had then,
    which is the window of each. Before they are cancelled it is seen to read.

    The control is in the test: the same without being cancelled is read wholly.
    """
    # Other texts each time: an equal one's scores are kept.
    texts = iter({c.text for record in records for c in record.captions if c.language == "de"})
    window = 2 * INSTANCE_COUNT * pair_batch_size(read_manifest(model_repository))

    before = _at_rest(stack)
    with grpc.insecure_channel(stack.address) as channel:
        calls = _searches(channel, scenes_index, texts)
        assert all(call.result().rerank.reranked_depth == DEPTH for call in calls)
    whole = _at_rest(stack).since(before).inferences
    assert whole >= SEARCH_COUNT * DEPTH

    before = _at_rest(stack)
    with grpc.insecure_channel(stack.address) as channel:
        calls = _searches(channel, scenes_index, texts)
        _wait_until(lambda: _now(stack).since(before).inferences > 2 * STACK_CANARY_COUNT)
        for call in calls:
            call.cancel()
        _wait_until(lambda: not any(_has_calls(stack, f"rerank-{n}") for n in range(SHARD_COUNT)))
        when_left = _now(stack)
    after = _at_rest(stack).since(when_left).inferences
    print(f"{after} rows after the last call had left, {whole} of all, a window has {window}")
    assert after <= SHARD_COUNT * window + 2 * STACK_CANARY_COUNT


def _searches(
    channel: grpc.Channel, index_id: str, texts: Iterator[str]
) -> list[grpc.Future[pb.SearchItemsResponse]]:
    """Returns the calls of so many searches at once."""
    stub = SearchServiceStub(channel)
    return [
        stub.SearchItems.future(
            pb.SearchItemsRequest(
                index_id=index_id,
                query=content_pb2.Content(text=text),
                retrieve_k=DEPTH,
                rerank_k=DEPTH,
            ),
            timeout=60,
        )
        for text in itertools.islice(texts, SEARCH_COUNT)
    ]


def _has_calls(stack: LocalStack, name: str) -> bool:
    """Returns whether a service has requests in hand."""
    with urllib.request.urlopen(stack.metrics_url(name), timeout=60) as response:
        found = re.search(
            r"^tandem_rpc_inflight_bytes\{[^}]*\} (\S+)$", response.read().decode(), re.M
        )
    assert found is not None
    return float(found[1]) > 0


def _wait_until(is_so: Callable[[], bool]) -> None:
    end_time = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < end_time
        time.sleep(0.005)


def _now(stack: LocalStack) -> Counts:
    return Counts.of(stack.metrics_url("triton"), JOINT_ENCODER)


def _at_rest(stack: LocalStack) -> Counts:
    return Counts.at_rest(stack.metrics_url("triton"), JOINT_ENCODER, STACK_CANARY_COUNT)
