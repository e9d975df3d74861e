"""Encodes batches of items, and commits each item on the shard that owns it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tandem.chassis.access.callers import asking_caller
from tandem.chassis.capacity.places import Places
from tandem.contract.content import Content, TextUse, TruncationPolicy
from tandem.contract.deadline import Deadline
from tandem.contract.identifiers import check_item_id, check_request_id
from tandem.contract.limits import MAX_INGEST_ITEM_COUNT, check_batch_size
from tandem.contract.search.ingest import IncomingItem, IngestBatch, Outcomes
from tandem.errors import (
    AttributeInvalid,
    ItemIdDuplicate,
    ModelMismatch,
    TandemError,
    TruncationPolicyInvalid,
    WriterRefused,
)
from tandem.search.calls.fan_out import answer_or_error, fan_out
from tandem.search.indexes.router import Route, Router, check_alias
from tandem.search.metrics import timed_stage
from tandem.search.shard_map import ShardMap
from tandem.search.writes.write_id import refused_by_name, shard_request_id
from tandem.stages.encoding import EncodedBatch, Encoder
from tandem.stages.item_write import Upsert
from tandem.stages.items import ItemRecord
from tandem.stages.shard import Shard


@dataclass(frozen=True, slots=True)
class EncodedItems:
    """Holds a batch between encoding and storing."""

    batch: IngestBatch
    outcomes: Outcomes
    """So far; None for the items that are to be stored."""
    items: Mapping[int, ItemRecord] = field(default_factory=dict)
    """Those to be stored, by their number in the batch."""
    fingerprint: str = ""
    route: Route | None = None
    """To the generation whose model encoded them; None if nothing was encoded."""


@dataclass(frozen=True, slots=True)
class Ingested:
    """Holds the outcome of a batch."""

    outcomes: Outcomes
    sequences: Mapping[int, int]
    """By shard number, the change log's sequence on the shards that stored items."""
    text_uses: Mapping[int, TextUse] = field(default_factory=dict)
    """How much was read of the texts that were encoded, by their number in the batch."""
    switches: Mapping[str, int] = field(default_factory=dict)
    """How often the alias was switched, as `make_token` takes it."""


class Ingester:
    """Encodes and stores batches of items, in two steps, so that a stream can order the second."""

    def __init__(
        self,
        router: Router,
        shards: Sequence[Shard],
        shard_map: ShardMap,
        batch_timeout_seconds: float,
        encode_batch_count: int,
    ) -> None:
        """Takes `shards` by number, as many as the map has.

        `encode_batch_count` batches are encoded at once, over all streams, shared by caller. The
        others wait, and their time starts with their turn, so that no batch fails because of those
        before it.
        """
        self._router = router
        self._shards = shards
        self._shard_map = shard_map
        self._batch_timeout_seconds = batch_timeout_seconds
        self._encode_turns = Places(encode_batch_count)
        self._failed_shards: set[int] = set()
        """Those that failed to store their part last: they are asked before more is encoded."""

    async def encode(self, batch: IngestBatch) -> EncodedItems:
        """Encodes the batch's items, and notes the errors of those that cannot be stored.

        Items of a shard that failed and is still away have its error, and are not encoded. Raises
        BatchSizeOutOfRange, IndexIdInvalid, RequestIdInvalid or TruncationPolicyInvalid for a batch
        that is refused as a whole.
        """
        _check_batch(batch)
        outcomes = [_refusal(item) for item in batch.items]
        try:
            deadline = Deadline.after(self._batch_timeout_seconds)
            if self._failed_shards:
                outcomes = await self._with_absences(batch, outcomes, deadline)
            good = [number for number, error in enumerate(outcomes) if error is None]
            if not good:
                return EncodedItems(batch, outcomes)
            route = await self._router.route(batch.index_id, deadline)
            return await self._encoded_for(route, batch, good, outcomes)
        except TandemError as error:
            failure = error.kept()
            return EncodedItems(batch, [outcome or failure for outcome in outcomes])

    async def store(self, encoded: EncodedItems) -> Ingested:
        """Commits each shard's items in one transaction; a shard that fails fails only its own.

        Items that a shard refuses, because another generation serves since they were encoded, are
        encoded by its model and stored in that one.
        """
        deadline = Deadline.after(self._batch_timeout_seconds)
        batch, outcomes = encoded.batch, list(encoded.outcomes)
        items_of_shard: dict[int, dict[int, ItemRecord]] = {}
        last = {item.item_id: number for number, item in encoded.items.items()}
        for number, item in encoded.items.items():
            if last[item.item_id] != number:
                outcomes[number] = ItemIdDuplicate(item_id=item.item_id)
                continue
            shard = self._shard_map.owner(batch.index_id, item.item_id)
            items_of_shard.setdefault(shard, {})[number] = item
        sequences: dict[int, int] = {}
        switches: dict[str, int] = {}
        stored: dict[int, ItemRecord] = {}

        async def store_on(shard: int, items: Mapping[int, ItemRecord], name: str) -> None:
            try:
                part, sequence = replace(encoded, items=items), None
                while part.items and sequence is None:
                    try:
                        sequence = await self._write(part, shard, name, deadline)
                        sequences[shard] = sequence
                    except (WriterRefused, ModelMismatch) as error:
                        part = await self._encoded_again(part, error, deadline)
            except TandemError as error:
                if isinstance(error, AttributeInvalid) and (half := len(items) // 2):
                    # Only an engine knows which attributes it cannot hold, and it says no item.
                    pairs = list(items.items())
                    await store_on(shard, dict(pairs[:half]), name and f"{name}/0")
                    await store_on(shard, dict(pairs[half:]), name and f"{name}/1")
                    return
                self._failed_shards.add(shard)
                for number in items:
                    outcomes[number] = error.kept()
                return
            stored.update(part.items)
            assert part.route is not None, "it was encoded"
            count = part.route.record.switch_count
            # A shard that stored its part before the switch may answer last.
            switches[batch.index_id] = max(count, switches.get(batch.index_id, 0))
            for number in items:
                outcomes[number] = part.outcomes[number]

        with timed_stage("ingest_store"):
            name = batch.request_id
            await fan_out(*(store_on(*each, name) for each in items_of_shard.items()))
        return Ingested(outcomes, sequences, _text_uses({**encoded.items, **stored}), switches)

    async def _with_absences(
        self, batch: IngestBatch, outcomes: Outcomes, deadline: Deadline
    ) -> Outcomes:
        """Returns the outcomes with the errors of failed shards that do not answer yet."""
        owners = [
            -1 if error else self._shard_map.owner(batch.index_id, item.item_id)
            for item, error in zip(batch.items, outcomes, strict=True)
        ]
        asked = self._failed_shards.intersection(owners)
        # Any small read tells.
        reads = (self._shards[each].note(batch.index_id, deadline) for each in asked)
        answers = await fan_out(*(answer_or_error(each, TandemError) for each in reads))
        both = zip(asked, answers, strict=True)
        errors = {shard: each for shard, each in both if isinstance(each, TandemError)}
        self._failed_shards -= asked - errors.keys()
        return [error or errors.get(own) for error, own in zip(outcomes, owners, strict=True)]

    async def _write(self, part: EncodedItems, shard: int, name: str, deadline: Deadline) -> int:
        """Commits items of one shard under that request id, and returns its sequence then."""
        assert part.route is not None, "it was encoded"
        own_id = shard_request_id(name, shard, self._shard_map)
        with refused_by_name(part.batch.request_id):
            items = list(part.items.values())
            write = Upsert(part.route.index_id, part.fingerprint, items, own_id)
            return (await self._shards[shard].write(write, deadline)).sequence

    async def _encoded_again(
        self, part: EncodedItems, error: TandemError, deadline: Deadline
    ) -> EncodedItems:
        """Returns the items for the generation that serves now; raises the error if none does."""
        assert part.route is not None, "it was encoded"
        route = await self._router.again(error, part.route, deadline)
        if (route.index_id, route.models) == (part.route.index_id, part.route.models):
            return part
        return await self._encoded_for(route, part.batch, list(part.items), part.outcomes)

    async def _encoded_for(
        self, route: Route, batch: IngestBatch, numbers: Sequence[int], outcomes: Outcomes
    ) -> EncodedItems:
        """Returns the items of those numbers, encoded; the outcomes have the errors of others."""
        contents = [_content(batch.items[number]) for number in numbers]
        made = await self._encoded(contents, batch, route.models.encoder)
        encoded, known = {}, list(outcomes)
        for number, result in zip(numbers, made.outcomes, strict=True):
            if isinstance(result, TandemError):
                known[number] = result
            else:
                item = batch.items[number]
                encoded[number] = ItemRecord(item.item_id, _content(item), result, item.attributes)
        return EncodedItems(batch, known, encoded, made.fingerprint, route)

    async def _encoded(
        self, contents: Sequence[Content], batch: IngestBatch, encoder: Encoder
    ) -> EncodedBatch:
        caller = asking_caller()
        with timed_stage("ingest_wait"):
            await self._encode_turns.wait_and_take(caller)
        try:
            deadline = Deadline.after(self._batch_timeout_seconds)
            with timed_stage("ingest_encode"):
                return await encoder.encode(
                    contents, deadline, truncation_policy=batch.truncation_policy
                )
        finally:
            self._encode_turns.give_back(caller)


def _check_batch(batch: IngestBatch) -> None:
    check_batch_size("items", len(batch.items), MAX_INGEST_ITEM_COUNT)
    if batch.truncation_policy is TruncationPolicy.BEST_WINDOW:
        raise TruncationPolicyInvalid(
            policy=batch.truncation_policy.value,
            why="an item has one embedding; ingest with error or truncate, or split the text",
        )
    check_alias(batch.index_id)
    check_request_id(batch.request_id)


def _refusal(item: IncomingItem) -> TandemError | None:
    """Returns what is wrong with an item, as far as it alone shows."""
    try:
        check_item_id(item.item_id)
    except TandemError as error:
        return error.kept()
    return item.content if isinstance(item.content, TandemError) else None


def _text_uses(encoded: Mapping[int, ItemRecord]) -> dict[int, TextUse]:
    uses = ((number, item.encoding.text_use) for number, item in encoded.items())
    return {number: use for number, use in uses if use is not None}


def _content(item: IncomingItem) -> Content:
    assert not isinstance(item.content, TandemError), "refused items are not encoded"
    return item.content
