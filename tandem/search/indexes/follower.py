"""Keeps one shard's part of a generation equal to another generation's, by another model."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TypeVar

from tandem.contract.content import Content, Encoding, TruncationPolicy
from tandem.contract.deadline import Deadline
from tandem.contract.limits import MAX_CONTENT_COUNT, MAX_PAGE_SIZE
from tandem.errors import (
    DeadlineExceeded,
    IndexNotFound,
    ItemCorrupt,
    ModelMismatch,
    ModelUnavailable,
    Overloaded,
    ServiceUnavailable,
    StoreFull,
    TandemError,
)
from tandem.search.indexes.pace import ReembedPace
from tandem.stages.encoding import EncodedBatch, Encoder
from tandem.stages.item_write import Committed, Delete, Upsert
from tandem.stages.items import FetchedItem, FetchedItems, ItemRecord, ItemsQuery
from tandem.stages.notes import WRITER_PREFIX, SetWriter, WriterRule
from tandem.stages.shard import Shard

T = TypeVar("T")

# Read, encoded and written at once.
_READ_BYTES = 8 * 2**20
_CALL_SECONDS = 60.0
_IDLE_SECONDS = 0.1
_SAVE_SECONDS = 1.0
_WAIT_SECONDS = 0.5
_NAMED_FAILURE_COUNT = 5
# They say nothing about an item; nothing was stored.
_PASSING: tuple[type[TandemError], ...] = (
    DeadlineExceeded,
    ModelUnavailable,
    Overloaded,
    ServiceUnavailable,
)


@dataclass(slots=True)
class FollowerProgress:
    """Says how far a follower came on a shard; kept in the target's writer rule."""

    sequence: int = 0
    """Up to which the change log was followed."""
    is_scanned: bool = False
    """Whether the source was read to its end since the log is followed."""
    scanned_item_id: str = ""
    scanned_count: int = 0
    truncated_count: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    """Why the model cannot encode items, by id; the first few."""
    items_per_second: float = 0.0
    """Of the scan, lately."""
    waits_for: str = ""
    """Why nothing can be brought now; empty while it can."""

    @classmethod
    def of(cls, rule: WriterRule) -> "FollowerProgress | None":
        """Returns what the rule keeps; None for an index that nothing follows into."""
        return cls(**json.loads(rule.progress)) if rule.progress else None

    def text(self) -> str:
        """Returns it for a writer rule."""
        return json.dumps(asdict(self))

    def followed_back(self) -> str:
        """Returns the progress of a follower the other way, once both are equal.

        What this one still brings is brought back again, which changes nothing.
        """
        return FollowerProgress(self.sequence, is_scanned=True).text()


class Follower:
    """Brings items of a source index to a target index on the same shard, encoded by its model.

    First all items by id, meanwhile and then what the change log names. It brings an item's state
    of that moment, so that nothing is wrong if it is brought twice. Raises WriterRefused once there
    is a follower of a later term. After ServiceUnavailable or DeadlineExceeded a write may still
    come: only a follower of a later term may continue.
    """

    def __init__(
        self,
        shard: Shard,
        source_id: str,
        target_id: str,
        encoder: Encoder,
        fingerprint: str,
        term: int,
        pace: ReembedPace,
    ) -> None:
        """Takes the encoder of the target's model, which must have the fingerprint."""
        self._shard, self._source_id, self._target_id = shard, source_id, target_id
        self._encoder, self._fingerprint = encoder, fingerprint
        self._term, self._pace = term, pace
        self.progress = FollowerProgress()
        self.lag = 0
        """Changes of the log, of all indexes, that were not looked at when it was last read."""
        self._saved_text, self._save_time, self._scan_time = "", 0.0, 0.0
        self._waited_seconds = 0.0
        """For an encoder or a disk; no work, after which the scan would rest."""
        self._is_stopped = False

    async def begin(self) -> None:
        """Closes the target to writes of others, and continues where the last follower was."""
        note = await self._shard.note(WRITER_PREFIX + self._target_id, self._deadline())
        if (progress := FollowerProgress.of(WriterRule.of(note))) is not None:
            self.progress = progress
        else:
            await self._begin_scan()
        await self._save()

    async def run(self) -> None:
        """Brings items until stop() is called; the scan at its pace, changes as they come."""
        began_time, before_count = time.monotonic(), self.progress.scanned_count
        while not self._is_stopped:
            has_brought = await self.follow()
            now, waited_seconds = time.monotonic(), self._waited_seconds
            if not self.progress.is_scanned and now >= self._scan_time:
                await self._scan()
                ended = time.monotonic()
                worked_seconds = ended - now - (self._waited_seconds - waited_seconds)
                self._scan_time = ended + self._pace.rest_seconds(worked_seconds)
                count = self.progress.scanned_count - before_count
                self.progress.items_per_second = count / (ended - began_time)
            elif not has_brought:
                await asyncio.sleep(_IDLE_SECONDS)
            if self._is_stopped or time.monotonic() > self._save_time + _SAVE_SECONDS:
                with suppress(StoreFull):
                    await self._save()

    def stop(self) -> None:
        """Has run() return once what it brings now is written."""
        self._is_stopped = True

    async def follow(self, *, up_to: int | None = None) -> bool:
        """Brings a page of changes, or all up to a sequence; returns whether there were any."""
        while True:
            at, deadline = self.progress, self._deadline()
            page = await self._shard.changes(at.sequence, MAX_PAGE_SIZE, deadline)
            changed = [e.item_id for e in page.changes or () if e.index_id == self._source_id]
            if page.changes is None or "" in changed:  # trimmed, or the source was dropped
                await self._begin_scan()
                return True
            if not at.is_scanned:  # the scan brings the others
                changed = [each for each in changed if each <= at.scanned_item_id]
            await self._bring(list(dict.fromkeys(changed)))
            if page.changes:
                at.sequence = page.changes[-1].sequence
            self.lag = max(page.sequence - at.sequence, 0)
            if up_to is None or at.sequence >= up_to:
                return bool(changed)

    async def _begin_scan(self) -> None:
        page = await self._shard.changes(0, 1, self._deadline())
        self.progress = FollowerProgress(page.sequence)

    async def _scan(self) -> None:
        """Brings the next items by id; those that only the target has were deleted meanwhile."""
        after, pages = self.progress.scanned_item_id, []
        for index_id in (self._source_id, self._target_id):
            try:
                ids = await self._shard.list_item_ids(
                    index_id, after, MAX_CONTENT_COUNT, self._deadline()
                )
            except IndexNotFound:
                ids = ()
            pages.append(ids)
        ends = [ids[-1] for ids in pages if len(ids) == MAX_CONTENT_COUNT]
        # Python compares strings as UTF-8 compares their bytes, by code points.
        item_ids = sorted(e for e in {*pages[0], *pages[1]} if not ends or e <= min(ends))
        await self._bring(item_ids)
        self.progress.scanned_count += sum(each in set(pages[0]) for each in item_ids)
        self.progress.scanned_item_id = min(ends, default="")
        self.progress.is_scanned = not ends

    async def _bring(self, item_ids: Sequence[str]) -> None:
        """Gives the target's items the state that the source's have now."""
        while item_ids:
            fetched = await self._fetched(item_ids[:MAX_CONTENT_COUNT])
            done, item_ids = item_ids[: fetched.read_count], item_ids[fetched.read_count :]
            items = {each: item for each in done if (item := fetched.items.get(each))}
            records = await self._known(done, items) if items else []
            known = {record.item_id for record in records}
            if new := {each: item for each, item in items.items() if each not in known}:
                records += await self._encoded(new)
            kept = {record.item_id for record in records}
            if gone := [each for each in done if each not in kept]:
                with suppress(IndexNotFound):
                    await self._write(Delete(self._target_id, gone, term=self._term))
            if records:
                await self._write(
                    Upsert(self._target_id, self._fingerprint, records, term=self._term)
                )
            for each in kept | (set(gone) - items.keys()):
                self.progress.failed.pop(each, None)

    async def _known(
        self, item_ids: Sequence[str], items: Mapping[str, FetchedItem]
    ) -> list[ItemRecord]:
        """Returns those of the items whose contents the target has under one of the ids.

        So it encodes no item whose attributes alone changed, or whose id did within a page.
        """
        kept: dict[Content, Encoding] = {}
        with suppress(IndexNotFound, ItemCorrupt):
            while item_ids:
                query = ItemsQuery(self._target_id, item_ids, encodings_included=True)
                found = await self._shard.get(query, self._deadline())
                item_ids = item_ids[found.read_count :]
                for each in found.items.values() if found.fingerprint == self._fingerprint else ():
                    if each.content is not None and each.encoding is not None:
                        kept[each.content] = each.encoding
        return [
            ItemRecord(item_id, item.content, kept[item.content], item.attributes)
            for item_id, item in items.items()
            if item.content in kept and item.content is not None
        ]

    async def _fetched(self, item_ids: Sequence[str]) -> FetchedItems:
        try:
            query = ItemsQuery(self._source_id, item_ids, max_bytes=_READ_BYTES)
            return await self._shard.get(query, self._deadline())
        except IndexNotFound:
            return FetchedItems({}, len(item_ids))
        except ItemCorrupt as error:
            if len(item_ids) > 1:  # one by one
                return await self._fetched(item_ids[:1])
            self._note_failure(item_ids[0], error)
            return FetchedItems({}, 1)

    async def _encoded(self, items: Mapping[str, FetchedItem]) -> list[ItemRecord]:
        """Returns the items as the model encodes them, without those that it cannot encode."""
        contents = [item.content for item in items.values() if item.content is not None]

        async def encode() -> EncodedBatch:
            made = await self._encoder.encode(
                contents, self._deadline(), truncation_policy=TruncationPolicy.TRUNCATE
            )
            for each in made.outcomes:
                if isinstance(each, _PASSING):
                    raise each
            return made

        async with self._pace.encoding:
            made = await self._when_possible(encode, _PASSING)
        records = []
        for (item_id, item), outcome in zip(items.items(), made.outcomes, strict=True):
            if isinstance(outcome, TandemError):
                self._note_failure(item_id, outcome)
                continue
            if made.fingerprint != self._fingerprint:
                raise ModelMismatch(request=made.fingerprint, index=self._fingerprint)
            assert item.content is not None, "the query includes contents"
            records.append(ItemRecord(item_id, item.content, outcome, item.attributes))
            if outcome.text_use and outcome.text_use.is_truncated:
                self.progress.truncated_count += 1
        return records

    def _note_failure(self, item_id: str, error: TandemError) -> None:
        failed = self.progress.failed
        if item_id in failed or len(failed) < _NAMED_FAILURE_COUNT:
            failed[item_id] = error.message

    async def _write(self, write: Upsert | Delete) -> Committed:
        return await self._when_possible(
            lambda: self._shard.write(write, self._deadline()), (StoreFull,)
        )

    async def _when_possible(
        self, work: Callable[[], Awaitable[T]], errors: tuple[type[TandemError], ...]
    ) -> T:
        """Returns what the work does, tried again after those errors until stop() is called."""
        while True:
            began_time = time.monotonic()
            try:
                done = await work()
            except errors as error:
                self.progress.waits_for = error.message
                if self._is_stopped:
                    raise
            else:
                self.progress.waits_for = ""
                return done
            with suppress(StoreFull):
                await self._save()
            await asyncio.sleep(_WAIT_SECONDS)
            self._waited_seconds += time.monotonic() - began_time

    async def _save(self) -> None:
        text = self.progress.text()
        if text != self._saved_text:
            rule = SetWriter(self._target_id, self._term, is_open=False, progress=text)
            await self._shard.write(rule, self._deadline())
            self._saved_text = text
        self._save_time = time.monotonic()

    def _deadline(self) -> Deadline:
        return Deadline.after(_CALL_SECONDS)
