"""Certificates and tokens change while the services run, and no call fails.

With every change of ours each is rotated once; `make test-security` rotates each twenty times at
100 calls a second, and waits until a caller whose authority was removed is out.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from pathlib import Path

import grpc
import pytest
import trustme
from prometheus_client.parser import text_string_to_metric_families

from tandem.client import Access, AsyncClient
from tandem.v1 import index_service_pb2
from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tests.support.chassis.authority import Files
from tests.support.pictures.pictures import encoded, noise
from tests.support.security.credentials import UNAUTHENTICATED, UNAVAILABLE, credentials_of
from tests.support.security.rotation import Caller, rotate_certificates, rotate_token
from tests.support.security.run_counts import is_full, run_count
from tests.support.security.secured_stack import INDEX_ID, SecuredStack

TEXT = "two dogs left of one umbrella"
ROTATION_COUNT = run_count(1, 20)
# With other tests running the load is smaller; what is claimed is the full one.
CALLS_PER_SECOND = run_count(30, 100)
# Connections end gracefully after 45 s, give or take a tenth.
OUT_SECONDS = 60


async def test_rotations_fail_no_call(secured: SecuredStack, tmp_path: Path) -> None:
    """Through both rotations every call is answered, in full; what was rotated out is refused."""
    first_authority, first_token = secured.authority, secured.token
    old = Files(tmp_path / "old")
    old.write(first_authority, "orchestrator", trusted=(first_authority,))
    await fill(secured)
    caller = Caller(secured, TEXT)
    retried_before = retried_count(secured)

    async with caller.calling(CALLS_PER_SECOND) as tally:
        start_time = time.monotonic()
        shown = [await rotate_certificates(secured) for _ in range(ROTATION_COUNT)]
        for number in range(ROTATION_COUNT):
            await rotate_token(secured, caller, number)
        seconds = time.monotonic() - start_time

    told = {
        "rotations": {"certificates": ROTATION_COUNT, "tokens": ROTATION_COUNT},
        "seconds": round(seconds, 1),
        "calls": dict(tally.sent),
        "failed": len(tally.failures),
        "degraded": tally.degraded_count,
        "retried_behind": retried_count(secured) - retried_before,
        "slowest_call_seconds": round(tally.slowest_seconds, 3),
        "new_certificate_shown_after_seconds_max": round(max(shown), 3),
    }
    print(json.dumps(told))
    assert tally.failures == []
    assert tally.degraded_count == 0
    # In short it runs with other tests, which may take most of the machine.
    assert tally.sent["SearchItems"] >= (0.2 if is_full() else 0.02) * CALLS_PER_SECOND * seconds
    assert max(shown) <= (1.0 if is_full() else 30.0)
    assert await caller.once() is grpc.StatusCode.OK
    caller.token = first_token
    assert await caller.once() is UNAUTHENTICATED
    assert await index_status(secured, old, secured.authority) is UNAVAILABLE
    good = secured.files["orchestrator"]
    assert await index_status(secured, good, secured.authority) is grpc.StatusCode.OK


# A control of the tests, not of the product.
@pytest.mark.slow
async def test_a_rotation_done_wrongly_is_noticed(secured: SecuredStack) -> None:
    """The control: an authority changed in one step, at one service, is seen by the same load."""
    await fill(secured)
    caller = Caller(secured, TEXT)
    async with caller.calling(20) as tally:
        await asyncio.sleep(0.5)
        assert not tally.failures
        # The orchestrator now shows a certificate that no one trusts, and trusts no one.
        secured.files["orchestrator"].write(trustme.CA(), "127.0.0.1", "orchestrator")
        await asyncio.wait_for(tally.fault.wait(), 60)
    secured.show_certificates_of(secured.authority)

    assert tally.failures or tally.degraded_count
    end_time = time.monotonic() + 90
    while await caller.once() is not grpc.StatusCode.OK:
        assert time.monotonic() < end_time
        await asyncio.sleep(0.2)


@pytest.mark.skipif(not is_full(), reason="takes up to a minute; make test-security")
async def test_an_old_connection_ends_once_its_authority_is_removed(
    secured: SecuredStack, tmp_path: Path
) -> None:
    """A caller that keeps its connection busy is out within a minute."""
    old = Files(tmp_path / "old")
    old.write(secured.authority, "orchestrator", trusted=(secured.authority,))
    channel = grpc.aio.secure_channel(secured.address_of("index-0"), credentials_of(old))
    async with channel:
        assert await get_items(channel) is grpc.StatusCode.OK
        await rotate_certificates(secured)
        start_time = time.monotonic()
        while await get_items(channel) is grpc.StatusCode.OK:
            assert time.monotonic() - start_time < OUT_SECONDS
            await asyncio.sleep(0.1)
    print(json.dumps({"removed_authority_out_after_seconds": time.monotonic() - start_time}))


async def fill(stack: SecuredStack) -> None:
    """Stores what searches find, and asks once, so that the answer is kept."""
    access = Access(stack.token, stack.authority.cert_pem.bytes())
    async with AsyncClient(stack.address, timeout_seconds=30.0, access=access) as client:
        items = [(f"image-{n}", encoded(noise(n, 32), "PNG")) for n in range(4)]
        async for outcome in client.ingest(items, index_id=INDEX_ID):
            assert outcome.error is None
        answer = await client.search(TEXT, index_id=INDEX_ID)
        # In addition to what other tests have stored in this stack.
        assert {item.item_id for item in answer.items} >= {item_id for item_id, _ in items}
        assert answer.degradations == ()


def retried_count(stack: SecuredStack) -> int:
    """Returns how many calls to downstream services the orchestrator made a second time."""
    with urllib.request.urlopen(stack.metrics_url("orchestrator"), timeout=60) as response:
        families = text_string_to_metric_families(response.read().decode())
    return sum(
        int(sample.value)
        for family in families
        for sample in family.samples
        if sample.name == "tandem_orchestrator_retries_total"
    )


async def index_status(stack: SecuredStack, files: Files, authority: trustme.CA) -> grpc.StatusCode:
    """Returns what a call of the shard ends with, on a new connection with the files' chain."""
    shown = files.identity().certificates()
    credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes(), shown.key, shown.chain)
    options = (("grpc.use_local_subchannel_pool", 1),)
    address = stack.address_of("index-0")
    async with grpc.aio.secure_channel(address, credentials, options=options) as channel:
        return await get_items(channel)


async def get_items(channel: grpc.aio.Channel) -> grpc.StatusCode:
    """Returns what a call of the shard ends with."""
    request = index_service_pb2.GetItemsRequest(index_id=INDEX_ID, item_ids=["text-0"])
    try:
        await IndexServiceStub(channel).GetItems(request, timeout=60)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK
