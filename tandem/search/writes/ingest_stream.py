"""Ingests the batches of one stream: encodes several at once, stores and answers them in order."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from tandem.contract.search.answer import IngestOutcome
from tandem.contract.search.ingest import IngestBatch
from tandem.search.shard_map import ShardMap
from tandem.search.writes.consistency_token import make_token
from tandem.search.writes.ingest import EncodedItems, Ingested, Ingester


class IngestStream:
    """Takes batches, and gives the outcomes of each, in their order.

    Reads none while `pending_batch_count` batches await their answer; gRPC's flow control
    passes that on to the sender.
    """

    def __init__(
        self, ingester: Ingester, shard_map: ShardMap, *, pending_batch_count: int
    ) -> None:
        self._ingester = ingester
        self._shard_map = shard_map
        self._pending_batch_count = pending_batch_count

    async def answers(
        self, batches: AsyncIterator[IngestBatch]
    ) -> AsyncGenerator[list[IngestOutcome], None]:
        """Yields each batch's outcomes, whose consistency token covers the batches before it too.

        A batch that is refused as a whole ends the stream with its error, after the answers to the
        batches before it; nothing after it is stored.
        """
        places = asyncio.Semaphore(self._pending_batch_count)
        encoding: asyncio.Queue[asyncio.Task[EncodedItems] | None] = asyncio.Queue()
        tasks: set[asyncio.Task[EncodedItems]] = set()
        sequences: dict[int, int] = {}
        switches: dict[str, int] = {}

        async def read() -> None:
            try:
                await places.acquire()
                async for batch in batches:
                    task = asyncio.create_task(self._ingester.encode(batch))
                    tasks.add(task)
                    encoding.put_nowait(task)
                    await places.acquire()
            finally:
                encoding.put_nowait(None)

        reading = asyncio.create_task(read())
        # Not a TaskGroup: it would cancel the task that runs this generator while that is in gRPC.
        try:
            while (task := await encoding.get()) is not None:
                encoded = await task
                ingested = await self._ingester.store(encoded)
                for shard, sequence in ingested.sequences.items():
                    sequences[shard] = max(sequence, sequences.get(shard, 0))
                switches |= ingested.switches
                token = make_token(sequences, self._shard_map, switches)
                yield _outcomes(ingested, encoded.batch, token)
                tasks.discard(task)
                places.release()
            await reading
        finally:
            for each in (reading, *tasks):
                each.cancel()
            await asyncio.gather(reading, *tasks, return_exceptions=True)


def _outcomes(ingested: Ingested, batch: IngestBatch, token: str) -> list[IngestOutcome]:
    return [
        IngestOutcome(item.item_id, error, token, ingested.text_uses.get(number))
        for number, (item, error) in enumerate(zip(batch.items, ingested.outcomes, strict=True))
    ]
