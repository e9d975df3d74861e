"""A steady load through the locks, while certificates and tokens change under it."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import trustme

from tandem.chassis.calls.channels import open_channel
from tandem.chassis.tls import Identity, TlsSettings
from tandem.v1 import content_pb2, model_service_pb2, search_service_pb2
from tandem.v1.model_service_pb2_grpc import ModelServiceStub
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.security.credentials import bearer
from tests.support.security.secured_stack import INDEX_ID, SecuredStack, token_entry

# Callers look at their files once a second, and at a call: longer than that.
SETTLE_SECONDS = 1.3
CALL_SECONDS = 60.0
# Of four calls one is a search, of a text whose encoding and scores are kept: encoder, index and
# rerank are called for it. The others describe the model, for which encoder and rerank are called.
SEARCH_PERIOD = 4
# Of the 24 that an orchestrator admits: a busy machine is given no more than it takes.
MOST_AT_ONCE = 16


@dataclass
class Tally:
    """What became of the calls."""

    sent: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    degraded_count: int = 0
    """Searches that were answered without one of the downstream services."""
    slowest_seconds: float = 0.0
    fault: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the first failure or degraded answer."""


class Caller:
    """A caller of the orchestrator, whose files and token change too."""

    def __init__(self, stack: SecuredStack, text: str) -> None:
        shown = stack.files["operator"].settings
        self.identity = Identity(
            TlsSettings(
                certificate_file=shown.certificate_file,
                key_file=shown.key_file,
                authority_file=shown.authority_file,
            )
        )
        self.token = stack.token
        self.tally = Tally()
        self._under_way: Counter[str] = Counter()
        """Calls by the token that they show."""
        self._address = stack.address
        self._request = search_service_pb2.SearchItemsRequest(
            query=content_pb2.Content(text=text), index_id=INDEX_ID
        )

    @asynccontextmanager
    async def calling(self, rate: float) -> AsyncIterator[Tally]:
        """Makes `rate` calls a second, each when it is due, until the body ends."""
        done = asyncio.Event()
        async with open_channel(self._address, self.identity) as channel:
            search = SearchServiceStub(channel).SearchItems
            describe = ModelServiceStub(channel).DescribeModel

            async def load() -> None:
                start_time = time.monotonic()
                number = 0
                async with asyncio.TaskGroup() as group:
                    while not done.is_set():
                        made = model_service_pb2.DescribeModelRequest()
                        due = (
                            ("DescribeModel", describe, made)
                            if number % SEARCH_PERIOD
                            else ("SearchItems", search, self._request)
                        )
                        if self._under_way.total() < MOST_AT_ONCE:
                            group.create_task(self._one(*due))
                        number += 1
                        await asyncio.sleep(start_time + number / rate - time.monotonic())

            loading = asyncio.create_task(load())
            try:
                yield self.tally
            finally:
                done.set()
                await loading

    async def done_with(self, token: str) -> None:
        """Returns once no call with the token is in progress."""
        async with asyncio.timeout(CALL_SECONDS):
            while self._under_way[token]:  # noqa: ASYNC110 (a count has no event to wait for)
                await asyncio.sleep(0.02)

    async def once(self) -> grpc.StatusCode:
        """Returns what a search on a new connection ends with."""
        metadata = tuple(bearer(self.token).items())
        async with open_channel(self._address, self.identity) as channel:
            search = SearchServiceStub(channel).SearchItems
            try:
                await search(self._request, metadata=metadata, timeout=CALL_SECONDS)
            except grpc.aio.AioRpcError as error:
                return error.code()
        return grpc.StatusCode.OK

    async def _one(
        self, name: str, method: Callable[..., grpc.aio.UnaryUnaryCall], request: object
    ) -> None:
        self.tally.sent[name] += 1
        start_time = time.monotonic()
        token = self.token
        metadata = tuple(bearer(token).items())
        self._under_way[token] += 1
        try:
            answer = await method(request, metadata=metadata, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            self.tally.failures.append(f"{name}: {error.code().name} {error.details()}")
            self.tally.fault.set()
            return
        finally:
            self._under_way[token] -= 1
            seconds = time.monotonic() - start_time
            self.tally.slowest_seconds = max(self.tally.slowest_seconds, seconds)
        if getattr(answer, "degradations", ()):
            self.tally.degraded_count += 1
            self.tally.fault.set()


async def rotate_certificates(stack: SecuredStack) -> float:
    """Changes the authority of everybody in three steps; returns when the old one is gone.

    Both are trusted; then the new one signs; then the old one is not trusted any more. The result
    is how long after the second step a new connection was shown the new certificate, in seconds.
    """
    before, following = stack.authority, trustme.CA()
    stack.show_certificates_of(before, trusted=(before, following))
    await asyncio.sleep(SETTLE_SECONDS)
    stack.show_certificates_of(following, trusted=(before, following))
    shown_seconds = await asyncio.to_thread(_seconds_until_shown, stack)
    await asyncio.sleep(SETTLE_SECONDS)
    stack.authority = following
    stack.show_certificates_of(following)
    await asyncio.sleep(SETTLE_SECONDS)
    return shown_seconds


async def rotate_token(stack: SecuredStack, caller: Caller, number: int) -> None:
    """Lets a new token in, moves the caller to it, and then lets the old one in no more."""
    old, new = caller.token, f"token-{number}-of-the-rotation"
    entries = (token_entry("before", old), token_entry("after", new))
    stack.token_path.write_text("\n".join(entries))
    await asyncio.sleep(SETTLE_SECONDS)
    caller.token = stack.token = new
    await caller.done_with(old)
    stack.token_path.write_text(entries[1])
    await asyncio.sleep(SETTLE_SECONDS)


def _seconds_until_shown(stack: SecuredStack) -> float:
    """Waits until the orchestrator shows new connections the certificate that is in its file."""
    host, _, port = stack.address.partition(":")
    chain = (stack.files["orchestrator"].folder / "tls.crt").read_text()
    first = chain[: chain.index(_END) + len(_END)]
    start_time = time.monotonic()
    while ssl.get_server_certificate((host, int(port)), timeout=60).strip() != first.strip():
        if time.monotonic() - start_time > 60:
            raise AssertionError("the new certificate is not shown to new connections")
    return time.monotonic() - start_time


_END = "-----END CERTIFICATE-----"
