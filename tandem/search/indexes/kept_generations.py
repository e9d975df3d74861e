"""Follows, promotes and drops the generations of one alias, as the holder of its lease."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from tandem.chassis.telemetry.log import get_logger
from tandem.contract.deadline import Deadline
from tandem.errors import (
    DeadlineExceeded,
    GenerationRefused,
    IndexNotFound,
    NoteChanged,
    ServiceUnavailable,
    TandemError,
    WriterRefused,
)
from tandem.search.calls.fan_out import answer_or_error, fan_out
from tandem.search.indexes import metrics
from tandem.search.indexes.alias_book import AliasBook
from tandem.search.indexes.follower import Follower
from tandem.search.indexes.pace import ReembedPace
from tandem.stages.aliases import AliasRecord, WantedChange, WantedOutcome
from tandem.stages.encoding import Encoder
from tandem.stages.notes import SetWriter
from tandem.stages.shard import Shard

log = get_logger()

FENCE_SECONDS = 0.5
KEPT_FOR_ROLLBACK_SECONDS = 24 * 3600.0
DROP, PROMOTE, ROLL_BACK = "drop", "promote", "rollback"

_TICK_SECONDS = 0.1
_HEARTBEAT_SECONDS = 1.0
_CALL_SECONDS = 5.0
_UNKNOWN_SECONDS = 0.05
# A round this short leaves time in a fence for the last changes.
_SHORT_SECONDS = FENCE_SECONDS / 3
_CATCH_UP_SECONDS = 30.0
_FENCE_COUNT = 5
_AWAY = (ServiceUnavailable, DeadlineExceeded)


class LeaseLost(Exception):
    """Another process keeps the alias now."""


def other_generation(record: AliasRecord) -> str:
    """Returns the generation that does not serve; empty if there is none."""
    ids = [each.index_id for each in record.generations if each.index_id != record.serving]
    return ids[0] if ids else ""


def followed_generation(record: AliasRecord) -> str:
    """Returns the generation that gets the serving one's items; empty if there is none.

    The one before a promotion gets them for a day, so that a rollback loses nothing.
    """
    other = other_generation(record)
    is_over = time.time() > record.promoted_time + KEPT_FOR_ROLLBACK_SECONDS
    return "" if other == record.previous and is_over else other


class KeptGenerations:
    """Keeps one alias from one taking of its lease to the next; every write has the lease's term.

    A successor repairs whatever this one left: it sets all writer rules to what the record says.
    """

    def __init__(
        self,
        book: AliasBook,
        shards: Sequence[Shard],
        record: AliasRecord,
        encoder: Encoder | None,
        pace: ReembedPace,
    ) -> None:
        """Takes the record with this process's lease, and the followed generation's encoder."""
        self._book, self._shards = book, shards
        self._alias, self._lease = record.alias, record.lease
        self._serving, self._other = record.serving, other_generation(record)
        self._followers: list[Follower] = []
        if encoder is not None:
            self._followers = [
                Follower(
                    shard,
                    self._serving,
                    self._other,
                    encoder,
                    record.fingerprint_of(self._other),
                    self._lease.term,
                    pace,
                )
                for shard in shards
            ]

    async def keep(self) -> None:
        """Follows until a request is done, and the record is another; raises what fails.

        Raises LeaseLost once another process has the lease.
        """
        await self._set_writers(self._serving, is_open=True)
        await fan_out(*(each.begin() for each in self._followers))
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(each.run()) for each in self._followers]
                beating = tasks.create_task(self._beat())
                wanted = await self._until_wanted()
                for each in self._followers:
                    each.stop()
                if running:
                    await asyncio.wait(running)
                if wanted is not None:
                    await self._carry_out(wanted)
                beating.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _until_wanted(self) -> WantedChange | None:
        """Returns what is wanted; None where other generations are to be followed."""
        while True:
            record = self._record()
            if record.wanted is not None:
                return record.wanted
            now = (record.serving, followed_generation(record))
            if now != (self._serving, self._other if self._followers else ""):
                return None
            metrics.note_followers(self._other, self._followers)
            await asyncio.sleep(_TICK_SECONDS)

    def _record(self) -> AliasRecord:
        record = self._book.record(self._alias)
        lease = record.lease
        if (lease.holder, lease.term) != (self._lease.holder, self._lease.term):
            raise LeaseLost(self._alias)
        return record

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            record = self._record()
            lease = replace(record.lease, heartbeat=record.lease.heartbeat + 1)
            with suppress(NoteChanged, *_AWAY):
                await self._book.put(replace(record, lease=lease), _soon())

    async def _put(
        self,
        changed: Callable[[AliasRecord], AliasRecord],
        is_done: Callable[[AliasRecord], bool],
    ) -> None:
        """Changes the record; after an unknown outcome it tries again until it is known."""
        while not is_done(record := self._record()):
            with suppress(NoteChanged, *_AWAY):
                await self._book.put(changed(record), _soon())
                return
            with suppress(*_AWAY):
                await asyncio.sleep(_UNKNOWN_SECONDS)
                await self._book.refresh(_soon())

    async def _carry_out(self, wanted: WantedChange) -> None:
        try:
            if wanted.index_id != self._other or not self._other:
                raise GenerationRefused(why=f"{wanted.index_id} is not the one that does not serve")
            if wanted.kind == DROP:
                await self._drop(wanted)
            else:
                await self._promote(wanted)
        except (LeaseLost, WriterRefused, *_AWAY):
            raise  # with the request in the record, for the next holder
        except TandemError as error:
            metrics.SWITCHES.labels(wanted.kind, "refused").inc()
            log.warning("request refused", alias=self._alias, kind=wanted.kind, why=error.message)
            ended = _ended(wanted, error.message, is_refused=True)
            await self._put(ended, lambda record: record.wanted != wanted)

    async def _drop(self, wanted: WantedChange) -> None:
        """Deletes the generation on all shards, and forgets it; its number is not given again."""
        await self._set_writers(self._other, is_open=False)
        for shard in self._shards:
            with suppress(IndexNotFound):
                while not (await shard.delete_index(self._other, _soon(30.0))).is_complete:
                    pass
        ended = _ended(wanted, f"{self._other} is dropped")

        def without(record: AliasRecord) -> AliasRecord:
            kept = tuple(e for e in record.generations if e.index_id != self._other)
            previous = "" if record.previous == self._other else record.previous
            return ended(replace(record, generations=kept, previous=previous))

        await self._put(without, lambda record: not record.has(self._other))
        log.info("generation dropped", index_id=self._other, caller=wanted.caller)

    async def _promote(self, wanted: WantedChange) -> None:
        """Has the other generation serve, with all items; raises GenerationRefused."""
        began_time, why = time.monotonic(), ""
        self._check_ready()
        for _ in range(_FENCE_COUNT):
            while not await self._round_is_short():
                if time.monotonic() > began_time + _CATCH_UP_SECONDS:
                    lag = sum(each.lag for each in self._followers)
                    why = f"a round of its changes takes over {_SHORT_SECONDS:.2f} s ({lag:,} left)"
                    raise GenerationRefused(why=f"{why}; load the shards less, and try again")
            self._check_ready()
            why = await self._fence(wanted)
            if not why:
                return
        raise GenerationRefused(why=why)

    def _check_ready(self) -> None:
        if not self._followers:
            raise GenerationRefused(why=f"{self._other} has not followed for a day; drop it")
        at = [each.progress for each in self._followers]
        if waits := next((each.waits_for for each in at if each.waits_for), ""):
            raise GenerationRefused(why=f"{self._other} waits: {waits}")
        if not all(each.is_scanned for each in at):
            count = sum(each.scanned_count for each in at)
            raise GenerationRefused(why=f"{self._other} is half-built: it has {count:,} items yet")

    async def _round_is_short(self) -> bool:
        began_time = time.monotonic()
        await fan_out(*(each.follow() for each in self._followers))
        is_near = all(each.lag < 1_000 for each in self._followers)
        return is_near and time.monotonic() < began_time + _SHORT_SECONDS

    async def _fence(self, wanted: WantedChange) -> str:
        """Closes the serving generation, and opens the other; returns why it did not.

        Both are closed for so short a time that callers' writes wait for it.
        """
        began_time, may_be_switched = time.monotonic(), False
        try:
            async with asyncio.timeout(FENCE_SECONDS) as fence:
                if why := await self._difference_when_closed():
                    return why
                fence.reschedule(None)  # what follows takes as long as it takes
                may_be_switched = True
                await self._put(
                    self._switched(wanted), lambda record: record.serving == self._other
                )
                await self._set_writers(self._other, is_open=True)
        except TimeoutError:
            # What was being written may still come: the next term refuses it.
            lag = sum(each.lag for each in self._followers)
            why = f"its last {lag:,} changes took over {FENCE_SECONDS} s; write less, and try again"
            raise GenerationRefused(why=why) from None
        finally:
            # Once the record may name the other one, only the next holder of the lease can tell.
            if not may_be_switched:
                await self._set_writers(self._serving, is_open=True)
            seconds = time.monotonic() - began_time
            metrics.FENCE_SECONDS.labels(self._alias).set(seconds)
        metrics.SWITCHES.labels(wanted.kind, "done").inc()
        log.info(
            "generation serves",
            index_id=self._other,
            before=self._serving,
            kind=wanted.kind,
            caller=wanted.caller,
            why=wanted.why,
            fence_seconds=round(seconds, 3),
        )
        return ""

    async def _difference_when_closed(self) -> str:
        """Closes the serving generation, and brings all of it; returns where both differ."""

        async def close(shard: Shard, follower: Follower) -> str:
            back = follower.progress.followed_back()
            rule = SetWriter(self._serving, self._lease.term, is_open=False, progress=back)
            committed = await shard.write(rule, _soon())
            await follower.follow(up_to=committed.sequence)
            if not follower.progress.is_scanned:
                return "the change log of a shard was trimmed; the scan begins again"
            ids = (self._serving, self._other)
            counts = dict.fromkeys(ids, (0, 0))
            for each in await shard.list_indexes("", len(ids), ids, _soon()):
                counts[each.index_id] = (each.text_count, each.image_count)
            if counts[self._serving] == counts[self._other]:
                return ""
            failed = "; ".join(f"{n}: {e}" for n, e in follower.progress.failed.items())
            own, others = (sum(counts[each]) for each in ids)
            return f"it has {others:,} items, {self._serving} {own:,} ({failed or 'of a shard'})"

        found = await fan_out(*map(close, self._shards, self._followers))
        return next(filter(None, found), "")

    def _switched(self, wanted: WantedChange) -> Callable[[AliasRecord], AliasRecord]:
        ended = _ended(wanted, f"{self._other} serves")
        is_promotion = wanted.kind == PROMOTE

        def changed(record: AliasRecord) -> AliasRecord:
            return ended(
                replace(
                    record,
                    serving=self._other,
                    previous=self._serving if is_promotion else "",
                    promoted_time=time.time(),
                    rolled_back_why="" if is_promotion else wanted.why,
                )
            )

        return changed

    async def _set_writers(self, index_id: str, *, is_open: bool) -> None:
        """Opens or closes it on every shard that answers, and raises the error of another."""
        rule = SetWriter(index_id, self._lease.term, is_open)
        writes = (answer_or_error(each.write(rule, _soon()), TandemError) for each in self._shards)
        for outcome in await fan_out(*writes):
            if isinstance(outcome, TandemError):
                raise outcome


def _ended(
    wanted: WantedChange, text: str, *, is_refused: bool = False
) -> Callable[[AliasRecord], AliasRecord]:
    outcome = WantedOutcome(text, wanted.asked_time, is_refused)
    return lambda record: replace(record, wanted=None, outcome=outcome)


def _soon(seconds: float = _CALL_SECONDS) -> Deadline:
    return Deadline.after(seconds)
