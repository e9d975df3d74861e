"""Takes and renews the leases of aliases, and keeps their generations while it has them."""

import asyncio
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import replace

from tandem.chassis.telemetry.log import get_logger
from tandem.contract.deadline import Deadline
from tandem.errors import ModelMismatch, NoteChanged, TandemError, WriterRefused
from tandem.search.indexes import metrics
from tandem.search.indexes.alias_book import AliasBook
from tandem.search.indexes.kept_generations import (
    DROP,
    KeptGenerations,
    LeaseLost,
    followed_generation,
    other_generation,
)
from tandem.search.indexes.pace import ReembedPace
from tandem.stages.aliases import AliasRecord, Lease
from tandem.stages.encoding import Encoder
from tandem.stages.shard import Shard

log = get_logger()

LEASE_SECONDS = 4.0
_POLL_SECONDS = 0.25
_CALL_SECONDS = 5.0


class Keeper:
    """Has this process follow the generations of aliases that no other process follows.

    A lease has expired once its heartbeat did not change for 4 s by this process's own clock; no
    clocks are compared. Taking one raises its term, by which shards refuse the one before.
    """

    def __init__(
        self,
        book: AliasBook,
        encoders: Sequence[Encoder],
        shards: Sequence[Shard],
        share: float,
        encode_count: int,
    ) -> None:
        """Takes the encoders of all models, and what ReembedPace takes, for each alias."""
        self._book, self._encoders, self._shards = book, encoders, shards
        self._share, self._encode_count = share, encode_count
        self._name = secrets.token_hex(8)
        self._seen: dict[str, tuple[Lease, float]] = {}
        self._keeping: dict[str, asyncio.Task[None]] = {}
        self._running: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Keeps what is to be kept from now on, until `close`."""
        self._running = asyncio.create_task(self._run(), context=Context())

    async def close(self) -> None:
        """Keeps nothing any more; another process continues."""
        tasks = [*self._keeping.values(), *filter(None, [self._running])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            with suppress(TandemError):
                await self._book.begin(Deadline.after(_CALL_SECONDS))
            for record in self._book.records():
                task = self._keeping.get(record.alias)
                if (task is None or task.done()) and self._may_take(record):
                    self._keeping[record.alias] = asyncio.create_task(self._keep(record))
            await asyncio.sleep(_POLL_SECONDS)

    def _may_take(self, record: AliasRecord) -> bool:
        """Returns whether the alias is to be kept, and no process keeps it."""
        if not followed_generation(record) and record.wanted is None:
            return False
        lease, since = self._seen.get(record.alias, (None, 0.0))
        if lease != record.lease:
            since = time.monotonic()
            self._seen[record.alias] = (record.lease, since)
        is_free = record.lease.holder in ("", self._name)
        return is_free or time.monotonic() > since + LEASE_SECONDS

    async def _keep(self, record: AliasRecord) -> None:
        """Keeps the alias once: until a request is done, or something fails."""
        followed, other = followed_generation(record), other_generation(record)
        deadline = Deadline.after(_CALL_SECONDS)
        try:
            # Before the lease: another process may have the model that this one lacks.
            encoder = None
            if followed and not (record.wanted and record.wanted.kind == DROP):
                encoder = await self._encoder_of(record.fingerprint_of(followed), deadline)
            lease = Lease(self._name, record.lease.term + 1)
            record = await self._book.put(replace(record, lease=lease), deadline)
            pace = ReembedPace(self._share, self._encode_count)
            await KeptGenerations(self._book, self._shards, record, encoder, pace).keep()
        except (LeaseLost, NoteChanged, WriterRefused):
            log.info("alias is kept by another process", alias=record.alias)
        except Exception as error:  # whatever it is, the next try begins with a new term
            metrics.REEMBED_FAULTS.inc()
            why = error.message if isinstance(error, TandemError) else repr(error)
            log.warning("generation not followed", index_id=other, why=why)
            await asyncio.sleep(1.0)
        finally:
            metrics.forget(other)

    async def _encoder_of(self, fingerprint: str, deadline: Deadline) -> Encoder:
        """Returns the encoder of that model; raises ModelMismatch if none here has it."""
        described = [await each.describe_model(deadline) for each in self._encoders]
        for encoder, model in zip(self._encoders, described, strict=True):
            if model.fingerprint == fingerprint:
                return encoder
        raise ModelMismatch(
            request=" and ".join(each.fingerprint for each in described), index=fingerprint
        )
