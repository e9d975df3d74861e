"""One shard over a real store, whose index is written by a caller and followed by another model."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np

from tandem.contract.content import Content, Encoding, TextContent, TextTokens, TruncationPolicy
from tandem.contract.deadline import Deadline
from tandem.contract.model_description import ModelDescription
from tandem.errors import IndexNotFound, TandemError, TextTooLong
from tandem.local.item_store.item_store import ItemStore
from tandem.local.shard.local_shard import LocalShard
from tandem.local.shard.shard import StoredShard
from tandem.stages.encoding import EncodedBatch, EncodePurpose, Encoder
from tandem.stages.item_write import Delete, Upsert
from tandem.stages.items import ItemRecord
from tests.support.item_store.made_items import unit_vector

LONG = "long"
"""Begins the texts that no model here encodes."""


class NumberEncoder(Encoder):
    """A model that embeds a text by its number, and is not told apart by it."""

    def __init__(self, fingerprint: str, dimension: int) -> None:
        self.fingerprint, self.dimension = fingerprint, dimension
        self.encoded_count = 0

    async def encode(
        self,
        contents: Sequence[Content],
        deadline: Deadline,
        *,
        purpose: EncodePurpose = EncodePurpose.INGEST,
        truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
    ) -> EncodedBatch:
        """Returns the encodings after a moment, in which callers write."""
        await asyncio.sleep(0.001)
        self.encoded_count += len(contents)
        return EncodedBatch(list(map(self._outcome, contents)), self.fingerprint)

    async def describe_model(self, deadline: Deadline) -> ModelDescription:
        """Returns the model of this fingerprint."""
        return ModelDescription(
            family="numbers",
            fingerprint=self.fingerprint,
            precision="fp32",
            embedding_dimension=self.dimension,
            max_text_token_count=8,
            max_text_bytes=64,
            max_image_bytes=64,
            max_image_pixel_count=64,
        )

    def encoding(self, text: str) -> Encoding:
        """Returns what it makes of a text."""
        number = int(text.rpartition(" ")[2])
        tokens = TextTokens(np.array([self.dimension, number], np.int32))
        return Encoding(unit_vector(number, self.dimension), tokens)

    def item(self, item_id: str, text: str) -> ItemRecord:
        """Returns an item of that text with its encoding."""
        number = int(text.rpartition(" ")[2])
        return ItemRecord(item_id, TextContent(text), self.encoding(text), {"number": number})

    def _outcome(self, content: Content) -> Encoding | TandemError:
        assert isinstance(content, TextContent)
        if content.text.startswith(LONG):
            return TextTooLong(got=2, limit=1, unit="tokens")
        return self.encoding(content.text)


@asynccontextmanager
async def open_shard(
    path: Path, kept_log_count: int = 10_000, map_bytes: int = 64 << 20
) -> AsyncIterator[LocalShard]:
    """Opens the only shard of a store."""
    store = ItemStore.open(path, 0, 1, map_bytes=map_bytes, kept_log_count=kept_log_count)
    stored = StoredShard(store, path)
    stored.load()
    with ThreadPoolExecutor(2) as threads:
        try:
            yield LocalShard(stored, threads)
        finally:
            stored.close()


class Caller:
    """Writes an index at random, and remembers the texts that it must have then."""

    def __init__(self, shard: LocalShard, index_id: str, model: NumberEncoder, seed: int) -> None:
        self.index_id, self.model = index_id, model
        self._shard, self._random, self._number = shard, random.Random(seed), 0
        self.texts: dict[str, str] = {}

    async def write(self, count: int, item_count: int = 300) -> None:
        """Stores and deletes so many times, of so many ids."""
        for _ in range(count):
            item_id = f"item-{self._random.randrange(item_count)}"
            if self._random.random() < 0.3 and self.texts:
                await self._shard.write(Delete(self.index_id, [item_id]), Deadline.after(60))
                self.texts.pop(item_id, None)
            else:
                self._number += 1
                await self.store({item_id: f"text {self._number}"})

    async def store(self, texts: dict[str, str]) -> None:
        """Stores the texts."""
        items = [self.model.item(item_id, text) for item_id, text in texts.items()]
        upsert = Upsert(self.index_id, self.model.fingerprint, items)
        await self._shard.write(upsert, Deadline.after(60))
        self.texts |= texts


async def stored_texts(shard: LocalShard, index_id: str, model: NumberEncoder) -> dict[str, str]:
    """Returns the texts of an index by id, whose encodings are the model's, and attributes too."""
    try:
        ids = list(await shard.list_item_ids(index_id, "", 1_000, Deadline.after(60)))
    except IndexNotFound:
        return {}
    texts = {}
    for item in shard._shard._store.read_items(index_id, ids):
        assert item is not None
        assert isinstance(item.content, TextContent)
        expected = model.item(item.item_id, item.content.text)
        np.testing.assert_array_equal(item.encoding.embedding, expected.encoding.embedding)
        assert item.attributes == expected.attributes
        texts[item.item_id] = item.content.text
    return texts
