"""Writes to a shard and searches it from several clients, and records every call."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc

from tandem.chassis.calls.status import REASON_KEY
from tandem.contract.field_wire import MODALITY_WIRE
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tandem.wire import embedding_to_proto
from tests.support.faults.history import Call, Finding, FindingKind, History, Version
from tests.support.faults.run_counts import is_full
from tests.support.faults.versioned_item import modality_of, versioned_item
from tests.support.index_svc.encoded_items import INDEX_ID, upsert_request
from tests.support.item_store.made_items import FINGERPRINT, unit_vector

# The rate of a run that is worth judging: below it too little was in progress at each fault.
FLOOR_WRITES_PER_SECOND = 50.0
# In short a run has other tests next to it, which may take most of the machine.
_QUICK_SHARE = 0.1

# These mean that nothing was changed; all others leave it open.
_REFUSALS = {
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
}
_MAX_BATCH_COUNT = 8
_DELETE_SHARE = 0.25


@dataclass(slots=True)
class Traffic:
    """Counts the calls and their outcomes, over all rounds of a run."""

    history: History
    rng: random.Random
    writer_count: int = 8
    item_count: int = 120
    timeout_seconds: float = 20.0
    padding_bytes: int = 0
    """Content added to each item."""
    newest_version: int = 0
    answered_count: int = 0
    seconds: float = 0.0
    failures: Counter[str] = field(default_factory=Counter)
    """Failed writes by gRPC code, and by our reason where one was given."""
    search_seconds: list[float] = field(default_factory=list)
    search_failures: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    """What searches showed that they must not."""

    @asynccontextmanager
    async def flowing(
        self, stub: IndexServiceStub, *, stop_at_failure: bool = True, search_pause: float = 0.01
    ) -> AsyncIterator[None]:
        """Writes and searches while the block runs, and awaits the last calls.

        A writer stops at its first failure, unless the caller lets it continue.
        """
        stopping = asyncio.Event()
        tasks = [
            asyncio.create_task(self._write(stub, stopping, stop_at_failure))
            for _ in range(self.writer_count)
        ]
        tasks.append(asyncio.create_task(self._search(stub, stopping, search_pause)))
        start_time = time.monotonic()
        try:
            yield
        finally:
            self.seconds += time.monotonic() - start_time
            stopping.set()
            await asyncio.gather(*tasks)

    def check_floor(self, floor: float = FLOOR_WRITES_PER_SECOND) -> None:
        """Raises AssertionError where too few writes were answered for the run to prove much."""
        floor = floor if is_full() else _QUICK_SHARE * floor
        rate = self.answered_count / max(self.seconds, 1e-9)
        assert rate >= floor, (
            f"invalid run: {rate:.0f} writes/s in {self.seconds:.1f} s, the floor is {floor:.1f}; "
            f"run it again on a quieter machine ({dict(self.failures)})"
        )

    def next_version(self) -> int:
        """Returns a version that no item has had."""
        self.newest_version += 1
        return self.newest_version

    async def write(self, stub: IndexServiceStub, changes: Mapping[str, Version]) -> str | None:
        """Makes one call, upserts or deletions; returns why it failed, None on success."""
        return await self.attempt(stub, self.begin(changes))

    def begin(self, changes: Mapping[str, Version]) -> Call:
        """Records a call that is about to be attempted."""
        return self.history.begin(changes, f"{self.rng.getrandbits(64):016x}")

    async def attempt(self, stub: IndexServiceStub, call: Call) -> str | None:
        """Makes the call, possibly again; returns why it failed, None on success."""
        try:
            sequence, change_count = await self._send(stub, call)
        except grpc.aio.AioRpcError as error:
            if error.code() in _REFUSALS:
                self.history.refused(call)
            else:
                self.history.unknown(call)
            return _name(error)
        self.history.answered(call, sequence, change_count)
        self.answered_count += 1
        return None

    async def _send(self, stub: IndexServiceStub, call: Call) -> tuple[int, int]:
        timeout = self.timeout_seconds
        items = [
            versioned_item(item_id, version, padding_bytes=self.padding_bytes)
            for item_id, version in call.changes.items()
            if version is not None
        ]
        if not items:
            deletion = pb.DeleteItemsRequest(
                index_id=INDEX_ID, item_ids=call.changes, request_id=call.request_id
            )
            deleted = await stub.DeleteItems(deletion, timeout=timeout)
            return deleted.sequence, deleted.deleted_count
        request = upsert_request(items)
        request.request_id = call.request_id
        upserted = await stub.UpsertItems(request, timeout=timeout)
        return upserted.sequence, len(items)

    async def _write(
        self, stub: IndexServiceStub, stopping: asyncio.Event, stop_at_failure: bool
    ) -> None:
        item_ids = [f"item-{number}" for number in range(self.item_count)]
        while not stopping.is_set():
            chosen = self.rng.sample(item_ids, self.rng.randint(1, _MAX_BATCH_COUNT))
            # The index comes into being with an upsert, so a deletion cannot be the first call.
            is_deletion = self.history.last_sequence > 0 and self.rng.random() < _DELETE_SHARE
            changes = {i: None if is_deletion else self.next_version() for i in chosen}
            if why := await self.write(stub, changes):
                self.failures[why] += 1
                if stop_at_failure:
                    return
                await asyncio.sleep(0.02)  # or a service that refuses at once gets nothing else

    async def _search(
        self, stub: IndexServiceStub, stopping: asyncio.Event, pause_seconds: float
    ) -> None:
        """Searches for recent writes; a deleted item must not be found."""
        while not stopping.is_set():
            await asyncio.sleep(pause_seconds)
            if self.history.last_sequence == 0:  # there is no index yet
                continue
            version = self.rng.randint(1, self.newest_version)
            request = pb.SearchEmbeddingsRequest(
                index_id=INDEX_ID,
                model_fingerprint=FINGERPRINT,
                modality=MODALITY_WIRE.to_proto(modality_of(version)),
                retrieve_k=20,
                queries=[embedding_to_proto(unit_vector(version))],
            )
            start_time = time.monotonic()
            try:
                response = await stub.SearchEmbeddings(request, timeout=self.timeout_seconds)
            except grpc.aio.AioRpcError as error:
                self.search_failures[_name(error)] += 1
                continue
            self.search_seconds.append(time.monotonic() - start_time)
            self._judge([hit.item_id for hit in response.hit_lists[0].hits], start_time)

    def _judge(self, item_ids: list[str], start_time: float) -> None:
        for item_id, count in Counter(item_ids).items():
            if count > 1:
                self.findings.append(
                    Finding(FindingKind.DUPLICATE, item_id, f"{count} times in one search")
                )
            if not self.history.may_be_live(item_id, start_time):
                self.findings.append(
                    Finding(FindingKind.PHANTOM, item_id, "found, and was deleted")
                )


def _name(error: grpc.aio.AioRpcError) -> str:
    reason = dict(error.trailing_metadata() or ()).get(REASON_KEY)
    code = error.code().name
    return f"{code} {reason}" if reason else code
