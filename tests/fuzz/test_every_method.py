"""Every method of every service is sent what no caller should send: none may fail for it.

What a method may answer is in `ALLOWED`: it refuses, and nothing else. With every change each gets
some requests, within a time; TANDEM_FUZZ_RUNS=full sends 200,000 to each, TANDEM_FUZZ_SEED others.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import pytest_asyncio
from google.protobuf.message import Message

from tandem.chassis.calls.channels import open_channel
from tandem.client import Client
from tandem.stack.stack import LocalStack
from tandem.v1.index_service_pb2 import SetWriterRequest
from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tests.support.fuzz.fuzzing import (
    Tally,
    fuzz,
    made_requests,
    methods,
    service_names,
    told_apart,
)
from tests.support.fuzz.run_counts import fuzz_seed, run_count
from tests.support.fuzz.valid_requests import INDEX_ID, SENTENCES, fill_index, valid_requests
from tests.support.local.tiny_stack import TINY_STACK

SERVICES = ("orchestrator", "encoder", "index-0", "rerank-0")
QUICK_COUNT = 50
FULL_COUNT = 200_000
COUNT = run_count(QUICK_COUNT, FULL_COUNT)

pytestmark = [
    TINY_STACK,
    # Of a service, which has up to eight methods.
    pytest.mark.timeout(300 + COUNT // 5),
]


@dataclass(frozen=True, slots=True)
class Known:
    """What a fuzzer knows of who it asks."""

    valid: dict[str, list[Message]]
    values: Sequence[str | bytes]


@pytest_asyncio.fixture(scope="module")
async def known(tiny_stack: LocalStack) -> Known:
    encoder = tiny_stack.address_of("encoder")
    return Known(*valid_requests(tiny_stack.address, encoder))


@pytest.mark.parametrize("service", SERVICES)
async def test_no_request_makes_a_service_fail(
    tiny_stack: LocalStack, known: Known, service: str
) -> None:
    address = tiny_stack.address if service == "orchestrator" else tiny_stack.address_of(service)
    tallies: dict[str, Tally] = {}
    async with open_channel(address) as channel:
        for name in await service_names(channel):
            for method in methods(name):
                valid = known.valid.get(method.name, [])
                requests = made_requests(method, valid, known.values, fuzz_seed())
                tallies[method.full_name] = await fuzz(channel, method, requests, COUNT)
                if method.name == "SetWriter":
                    # Some of the requests close the index to callers, in any term.
                    await IndexServiceStub(channel).SetWriter(
                        SetWriterRequest(index_id=INDEX_ID, term=2**63 - 1, is_open=True)
                    )
                if method.name in ("RemoveIndex", "DeleteIndex"):
                    # Some of the requests are right, and then nothing else finds anything.
                    await asyncio.to_thread(fill_index, tiny_stack.address)

    for method_name, tally in tallies.items():
        print(method_name, dict(tally.codes), f"slowest {tally.slowest_seconds:.1f} s")
    faults = [fault for tally in tallies.values() for fault in tally.faults]
    assert not faults, "\n".join(told_apart(faults)[:20])
    assert tiny_stack.dead_service() is None
    assert len(tallies) >= 5
    with Client(tiny_stack.address, timeout_seconds=30) as client:
        assert client.search(SENTENCES[0], index_id=INDEX_ID).items
