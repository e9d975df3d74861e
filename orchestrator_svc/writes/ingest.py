"""Items in: encode a batch, commit each item on the shard that owns it, say what became of it."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator_svc.fan_out import fan_out
from orchestrator_svc.metrics import StageClock
from orchestrator_svc.services.encoder_client import EncoderClient
from orchestrator_svc.services.shard_client import EncodedItem, ShardClient
from orchestrator_svc.shard_map import ShardMap
from orchestrator_svc.writes.write_id import shard_request_id
from tandem.chassis.deadline import Deadline
from tandem.contract.attributes import Attributes
from tandem.contract.content import Content, TextUse, TruncationPolicy
from tandem.contract.identifiers import check_index_id, check_item_id, check_request_id
from tandem.contract.limits import MAX_INGEST_ITEM_COUNT
from tandem.errors import (
    BatchSizeOutOfRange,
    ItemIdDuplicate,
    TandemError,
    TruncationPolicyInvalid,
)


def check_item_count(count: int) -> None:
    """Raises BatchSizeOutOfRange."""
    if not 1 <= count <= MAX_INGEST_ITEM_COUNT:
        raise BatchSizeOutOfRange(name="items", got=count, low=1, high=MAX_INGEST_ITEM_COUNT)


@dataclass(frozen=True, slots=True)
class IncomingItem:
    """An item as it came, or why it cannot be taken."""

    item_id: str
    content: Content | TandemError
    attributes: Attributes = field(default_factory=dict)


Outcomes = list[TandemError | None]
"""One entry an item of a batch, in its order; None means stored durably."""


@dataclass(frozen=True, slots=True)
class Ingested:
    """What became of a batch, and how far the change logs are of the shards that took part of it,
    by number."""

    outcomes: Outcomes
    sequences: Mapping[int, int]
    text_uses: Mapping[int, TextUse] = field(default_factory=dict)
    """How much was read of the texts that were encoded, by their number in the batch."""


class Ingester:
    """Encodes and stores batches of items."""

    def __init__(
        self,
        encoder: EncoderClient,
        shards: Sequence[ShardClient],
        shard_map: ShardMap,
        clock: StageClock,
        batch_timeout_seconds: float,
        encode_batch_count: int,
    ) -> None:
        """`shards` by number, as many as the map has.

        `encode_batch_count`: batches encoded at once, of all streams. Others wait for their turn,
        and their time begins with it: a batch must not fail because those before it were many.
        """
        self._encoder = encoder
        self._shards = shards
        self._shard_map = shard_map
        self._clock = clock
        self._batch_timeout_seconds = batch_timeout_seconds
        self._encode_turns = asyncio.Semaphore(encode_batch_count)

    async def ingest(
        self,
        index_id: str,
        items: Sequence[IncomingItem],
        may_store: asyncio.Event,
        request_id: str = "",
        truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
    ) -> Ingested:
        """Returns what became of each item of one batch.

        Encodes at once but stores only when `may_store` is set, so that batches of one stream can
        be encoded side by side and still take effect in their order. What was stored under
        `request_id` before is answered as then; an empty one is not remembered. Raises
        BatchSizeOutOfRange, IndexIdInvalid, RequestIdInvalid or TruncationPolicyInvalid for a batch
        that says nothing about any item.
        """
        _check_policy(truncation_policy)
        check_index_id(index_id)
        check_request_id(request_id)
        check_item_count(len(items))
        outcomes = _refusals(items)
        good = [number for number, error in enumerate(outcomes) if error is None]
        try:
            encoded, fingerprint = await self._encode(items, good, outcomes, truncation_policy)
        except TandemError as error:
            failure = error.kept()
            return Ingested([outcome or failure for outcome in outcomes], {})
        await may_store.wait()
        with self._clock.stage("ingest_store"):
            sequences = await self._store(index_id, encoded, fingerprint, request_id, outcomes)
        return Ingested(outcomes, sequences, _text_uses(encoded))

    async def _encode(
        self,
        items: Sequence[IncomingItem],
        good: Sequence[int],
        outcomes: Outcomes,
        truncation_policy: TruncationPolicy,
    ) -> tuple[dict[int, EncodedItem], str]:
        """Returns the encoded items by their number; notes the others' errors in `outcomes`."""
        if not good:
            return {}, ""
        contents = [_content(items[number]) for number in good]
        with self._clock.stage("ingest_wait"):
            await self._encode_turns.acquire()
        try:
            deadline = Deadline.after(self._batch_timeout_seconds)
            with self._clock.stage("ingest_encode"):
                made = await self._encoder.encode(
                    contents, deadline, truncation_policy=truncation_policy
                )
        finally:
            self._encode_turns.release()
        encoded = {}
        for number, result in zip(good, made.outcomes, strict=True):
            if isinstance(result, TandemError):
                outcomes[number] = result
            else:
                item = items[number]
                encoded[number] = EncodedItem(item.item_id, _content(item), result, item.attributes)
        return encoded, made.fingerprint

    async def _store(
        self,
        index_id: str,
        encoded: dict[int, EncodedItem],
        fingerprint: str,
        request_id: str,
        outcomes: Outcomes,
    ) -> dict[int, int]:
        """Commits each shard's items in one transaction; a shard that fails fails only its own.

        Returns the sequences of the shards that did not.
        """
        deadline = Deadline.after(self._batch_timeout_seconds)
        numbers_of_shard: dict[int, list[int]] = {}
        for number, item in encoded.items():
            shard = self._shard_map.owner(index_id, item.item_id)
            numbers_of_shard.setdefault(shard, []).append(number)

        sequences: dict[int, int] = {}

        async def store_on(shard: int, numbers: list[int]) -> None:
            owned = [encoded[number] for number in numbers]
            try:
                sequences[shard] = await self._shards[shard].upsert(
                    index_id,
                    fingerprint,
                    owned,
                    shard_request_id(request_id, shard, self._shard_map),
                    deadline,
                )
            except TandemError as error:
                for number in numbers:
                    outcomes[number] = error.kept()

        await fan_out(*(store_on(*entry) for entry in numbers_of_shard.items()))
        return sequences


def _refusals(items: Sequence[IncomingItem]) -> Outcomes:
    """Returns what is wrong with each item before anything is asked of anybody."""
    counts = Counter(item.item_id for item in items)
    return [_refusal(item, counts[item.item_id]) for item in items]


def _refusal(item: IncomingItem, count: int) -> TandemError | None:
    try:
        check_item_id(item.item_id)
    except TandemError as error:
        return error.kept()
    if count > 1:
        return ItemIdDuplicate(item_id=item.item_id)
    return item.content if isinstance(item.content, TandemError) else None


def _check_policy(policy: TruncationPolicy) -> None:
    if policy is TruncationPolicy.BEST_WINDOW:
        raise TruncationPolicyInvalid(
            policy=policy.value,
            why="an item has one embedding; ingest with error or truncate, or split the text",
        )


def _text_uses(encoded: Mapping[int, EncodedItem]) -> dict[int, TextUse]:
    uses = ((number, item.encoding.text_use) for number, item in encoded.items())
    return {number: use for number, use in uses if use is not None}


def _content(item: IncomingItem) -> Content:
    assert not isinstance(item.content, TandemError), "refused items are not encoded"
    return item.content
