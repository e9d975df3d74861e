"""Every method that the running services have, against every kind of bad credentials."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from prometheus_client.parser import text_string_to_metric_families

from tandem.contract.methods import ACCESS, AccessRule
from tandem.local.item_store.item_store import ItemStore
from tests.support.chassis.contract import (
    code_of,
    contract_methods,
    request_in_index,
    speaks_of_index,
)
from tests.support.fuzz.fuzzing import service_names
from tests.support.index_svc.shard_process import ShardProcess
from tests.support.security.credentials import (
    PERMISSION_DENIED,
    UNAUTHENTICATED,
    UNAVAILABLE,
    Door,
    Shown,
    bad_certificates,
    bad_tokens,
    bearer,
    credentials_of,
    scope_of,
)
from tests.support.security.secured_stack import INDEX_ID, SecuredStack

REFUSALS = {UNAUTHENTICATED.name, PERMISSION_DENIED.name}
METHODS = contract_methods()
# Longer than the second for which a service does not look at its files again.
TAKEN_UP_SECONDS = 1.2


def good_of(stack: SecuredStack, service: str) -> Shown:
    """Returns what lets a caller in at a service."""
    if service == "orchestrator":
        roots = grpc.ssl_channel_credentials(stack.authority.cert_pem.bytes())
        return Shown("good", grpc.StatusCode.OK, roots, bearer(stack.token))
    if service == "index-0":
        shown = credentials_of(stack.files["operator"])
        return Shown("good", grpc.StatusCode.OK, shown, bearer(stack.admin_token))
    return Shown("good", grpc.StatusCode.OK, credentials_of(stack.files["orchestrator"]))


async def served_methods(address: str, good: Shown) -> dict[str, MethodDescriptor]:
    """Returns the methods of ours that a service has, by its own reflection."""
    async with good.open(address) as channel:
        names = await service_names(channel)
    return {path: method for path, method in METHODS.items() if path.split("/")[1] in names}


def entered(stack: SecuredStack, service: str) -> Counter[tuple[str, str]]:
    """Returns how many calls were not refused at the door, by method and status.

    Without those by which orchestrators read the aliases, again and again.
    """
    counts: Counter[tuple[str, str]] = Counter()
    with urllib.request.urlopen(stack.metrics_url(service), timeout=60) as response:
        families = list(text_string_to_metric_families(response.read().decode()))
    for sample in (sample for family in families for sample in family.samples):
        if sample.name == "tandem_rpc_duration_seconds_count":
            method, code = sample.labels["method"], sample.labels["code"]
            if code not in REFUSALS and sample.value and method != "ReadNotes":
                counts[method, code] = int(sample.value)
    return counts


def bad_for(
    stack: SecuredStack, service: str, doors: dict[str, Door], folder: Path, path: str
) -> Iterator[Shown]:
    """Yields every kind of bad credentials that there is for a method of a service."""
    door, scope = doors.get(service), scope_of(ACCESS[path])
    good = good_of(stack, service)
    if service == "orchestrator":
        # It asks for no certificate, so one of another authority is not looked at.
        yield Shown("plain text", UNAVAILABLE, None, good.metadata)
        yield Shown(
            "a certificate, no token", UNAUTHENTICATED, credentials_of(stack.files["index-0"])
        )
    else:
        yield from bad_certificates(stack, folder, stack.token)
    if door is not None and scope is not None:
        assert good.credentials is not None
        for bad in bad_tokens(stack, door, scope, good.credentials):
            if not bad.speaks_of_index or speaks_of_index(METHODS[path]):
                yield bad


async def test_bad_credentials_enter_nothing(secured: SecuredStack, tmp_path: Path) -> None:
    """Each kind, on each method of each process: the right status, and no handler is entered.

    The control: good ones are let in by the same processes, on every method.
    """
    doors = {
        "orchestrator": Door(secured.token_path, secured.token, "gone", secured.admin_token),
        "index-0": Door(secured.admin_token_path, secured.admin_token, "gone", secured.token),
    }
    await remove_tokens(secured, doors)

    wrong: list[str] = []
    refused: Counter[str] = Counter()
    kinds: dict[str, set[str]] = {}
    met: set[str] = set()
    for service in secured.service_names():
        served = await served_methods(secured.address_of(service), good_of(secured, service))
        met |= served.keys()
        before = entered(secured, service)
        for path in served:
            shown = list(bad_for(secured, service, doors, tmp_path, path))
            codes = await asyncio.gather(*(attempt(secured, service, path, bad) for bad in shown))
            for bad, code in zip(shown, codes, strict=True):
                if code is not bad.code:
                    wrong.append(f"{service} {path}, {bad.kind}: {code.name}, not {bad.code.name}")
            refused[service] += len(shown)
            kinds.setdefault(service, set()).update(bad.kind for bad in shown)
        assert entered(secured, service) == before
        for path in served:
            code = await attempt(secured, service, path, good_of(secured, service))
            assert code.name not in REFUSALS, (service, path, code)
        methods = {path.rpartition("/")[2] for path in served} - {"ReadNotes"}
        # A call is counted as it ends, which its caller may see first.
        for _ in range(50):
            gained = {method for method, _ in entered(secured, service) - before}
            if gained == methods:
                break
            await asyncio.sleep(0.1)
        assert gained == methods

    assert wrong == []
    assert met == METHODS.keys(), "a method that no running service has was not tried"
    assert all(len(each) >= 5 for each in kinds.values())
    print(json.dumps({"refused": refused, "kinds": {k: len(v) for k, v in kinds.items()}}))


async def remove_tokens(stack: SecuredStack, doors: dict[str, Door]) -> None:
    """Has each door let a token in, and then not any more, without a restart."""
    for is_there in (True, False):
        for door in doors.values():
            door.write(with_removed=is_there)
        await asyncio.sleep(TAKEN_UP_SECONDS)
        for service, door in doors.items():
            good = good_of(stack, service)
            served = await served_methods(stack.address_of(service), good)
            path = next(path for path in served if ACCESS[path] is not AccessRule.INTERNAL)
            leaver = Shown("", UNAUTHENTICATED, good.credentials, bearer(door.removed))
            code = await attempt(stack, service, path, leaver)
            assert (code is UNAUTHENTICATED) is not is_there, (service, path, code)


async def attempt(stack: SecuredStack, service: str, path: str, shown: Shown) -> grpc.StatusCode:
    """Makes one call on a connection of its own; returns its status."""
    method = METHODS[path]
    async with shown.open(stack.address_of(service)) as channel:
        request = request_in_index(method, INDEX_ID)
        if method.name == "SetWriter":  # that leaves the index open to the next test's callers
            request.is_open = True
        return await code_of(channel, path, method, request, shown.metadata)


@pytest.mark.parametrize("service", ["orchestrator", "encoder", "index-0", "rerank-0"])
async def test_an_unknown_method_is_unimplemented(secured: SecuredStack, service: str) -> None:
    """Of another service's: nothing stands behind a door that its reflection does not tell."""
    good = good_of(secured, service)
    served = await served_methods(secured.address_of(service), good)
    for path in METHODS.keys() - served.keys():
        code = await attempt(secured, service, path, good)
        assert code is grpc.StatusCode.UNIMPLEMENTED, path


async def test_a_damaged_shard_checks_tokens_too(tmp_path: Path, secured: SecuredStack) -> None:
    """It tells the orchestrator what is damaged, and strangers nothing."""
    store = ItemStore.open(tmp_path / "shard", 0, 1)
    store.close()
    (tmp_path / "shard" / "data.mdb").write_bytes(bytes(40_960))
    files = secured.files["index-0"].settings
    process = ShardProcess(
        tmp_path / "shard",
        environment={
            "TLS_CERTIFICATE_FILE": files.certificate_file,
            "TLS_KEY_FILE": files.key_file,
            "TLS_AUTHORITY_FILE": files.authority_file,
            "TLS_PEER_NAMES": "orchestrator",
        },
    )
    path = "/tandem.v1.IndexService/GetItems"
    request = request_in_index(METHODS[path], INDEX_ID)
    request.item_ids.append("a")
    try:
        await (await process.listening()).close()
        address = f"127.0.0.1:{process.port}"
        details: dict[str, str] = {}
        shown = {
            "stranger": Shown("plain text", UNAVAILABLE, None),
            "encoder": Shown(
                "another name", UNAUTHENTICATED, credentials_of(secured.files["encoder"])
            ),
            "orchestrator": Shown("", UNAVAILABLE, credentials_of(secured.files["orchestrator"])),
        }
        for name, each in shown.items():
            async with each.open(address) as channel:
                call = channel.unary_unary(path, request_serializer=type(request).SerializeToString)
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call(request, timeout=60)
            assert caught.value.code() is each.code
            details[name] = caught.value.details() or ""
    finally:
        process.kill()
    assert [name for name, told in details.items() if "corrupt" in told] == ["orchestrator"]
    assert [name for name, told in details.items() if str(tmp_path) in told] == ["orchestrator"]
