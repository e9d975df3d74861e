"""Ingests the batches of one stream: encodes several at once, stores and answers them in order."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Generic, TypeVar

from tandem.search.writes.ingest import EncodedItems, IngestBatch, Ingested, Ingester

Request = TypeVar("Request")


class IngestStream(Generic[Request]):
    """Takes requests, and gives each batch and its outcome, in the order of the requests.

    Reads no request while `pending_batch_count` batches await their answer; gRPC's flow control
    passes that on to the sender.
    """

    def __init__(
        self,
        ingester: Ingester,
        read_batch: Callable[[Request], Awaitable[IngestBatch]],
        *,
        pending_batch_count: int,
    ) -> None:
        self._ingester = ingester
        self._read_batch = read_batch
        self._pending_batch_count = pending_batch_count

    async def answers(
        self, requests: AsyncIterator[Request]
    ) -> AsyncGenerator[tuple[IngestBatch, Ingested], None]:
        """Yields each batch with its outcome, whose sequences cover the batches before it too.

        A batch that is refused as a whole ends the stream with its error, after the answers to the
        batches before it; nothing after it is stored.
        """
        room = asyncio.Semaphore(self._pending_batch_count)
        encoding: asyncio.Queue[asyncio.Task[EncodedItems] | None] = asyncio.Queue()
        tasks: set[asyncio.Task[EncodedItems]] = set()
        sequences: dict[int, int] = {}

        async def read() -> None:
            try:
                await room.acquire()
                async for request in requests:
                    task = asyncio.create_task(self._encode(request))
                    tasks.add(task)
                    encoding.put_nowait(task)
                    await room.acquire()
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
                yield encoded.batch, replace(ingested, sequences=dict(sequences))
                tasks.discard(task)
                room.release()
            await reading
        finally:
            for each in (reading, *tasks):
                each.cancel()
            await asyncio.gather(reading, *tasks, return_exceptions=True)

    async def _encode(self, request: Request) -> EncodedItems:
        return await self._ingester.encode(await self._read_batch(request))
