"""A shard's store with real contents, for a remote cross-encoder to read."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tandem.chassis.capacity.caller_turns import CallerTurns
from tandem.contract.content import (
    Content,
    Encoding,
    ImageContent,
    ImageTokens,
    TextContent,
    Tokens,
)
from tandem.contract.model_description import ProbabilityCalibration
from tandem.local.item_store.item_store import ItemStore
from tandem.local.reranking.candidate_reader import CandidateReader
from tandem.local.reranking.remote.canary import RemoteCanary
from tandem.local.reranking.remote.endpoint import RemoteEndpoint, RemoteShape
from tandem.local.reranking.remote.http_client import RemoteHttpClient
from tandem.local.reranking.remote.remote_reranker import HttpReranker
from tandem.local.reranking.remote.remote_scorer import RemoteScorer
from tandem.local.reranking.remote.stored_documents import StoredDocuments
from tandem.stages.item_write import Delete, Upsert
from tandem.stages.items import ItemRecord
from tests.support.item_store.made_items import unit_vector
from tests.support.pictures.pictures import encoded, noise
from tests.support.rerank_svc.remote_api import RemoteApi
from tests.support.rerank_svc.served_reranker import INDEX_ID, MAP_BYTES, text_tokens

FINGERPRINT = "bi-encoder"
PICTURES = {f"i-{number}": encoded(noise(number, size=24), "PNG") for number in range(6)}
TEXTS = {f"t-{number}": f"text {number}" for number in range(3)}


def record(item_id: str, content: Content) -> ItemRecord:
    """Returns an item; its tokens are of a model without a cross-encoder: next to nothing."""
    tokens: Tokens = (
        text_tokens(1)
        if isinstance(content, TextContent)
        else ImageTokens(np.zeros((1, 1), dtype=np.float16))
    )
    return ItemRecord(item_id, content, Encoding(unit_vector(1), tokens))


class RemoteShard:
    """Writes a shard as index_svc would; the reader of `store` closes it."""

    def __init__(self, path: Path, fingerprint: str = FINGERPRINT) -> None:
        """Fills it with PICTURES, TEXTS and "broken", a picture that cannot be decoded."""
        self.fingerprint = fingerprint
        self.store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
        self.upsert({item_id: ImageContent(file) for item_id, file in PICTURES.items()})
        self.upsert({item_id: TextContent(text) for item_id, text in TEXTS.items()})
        self.upsert({"broken": ImageContent(b"no picture")})

    def upsert(self, contents: dict[str, Content]) -> None:
        """Writes the items."""
        items = [record(*each) for each in contents.items()]
        self.store.apply([Upsert(INDEX_ID, self.fingerprint, items)])

    def delete(self, item_id: str) -> None:
        """Deletes an item."""
        self.store.apply([Delete(INDEX_ID, [item_id])])


@asynccontextmanager
async def reranker_of(
    api: RemoteApi,
    shard: RemoteShard,
    *,
    cache_bytes: int = 0,
    document_cache_bytes: int = 0,
    calibration: ProbabilityCalibration | None = None,
    **fields: Any,
) -> AsyncIterator[HttpReranker]:
    """Yields a reranker of the shard's items that passed its canary, of which the API forgets."""
    endpoint = RemoteEndpoint(url=api.url, model="m", shape=RemoteShape(api.shape), **fields)
    client = RemoteHttpClient(endpoint)
    with ThreadPoolExecutor(2) as threads:
        turns = CallerTurns(threads, 2)
        scorer = RemoteScorer(client, endpoint)
        # One process opens a store once: what reads it also writes it here.
        reader = CandidateReader(lambda: shard.store, turns, shard.fingerprint)
        reranker = HttpReranker(
            scorer,
            endpoint,
            reader,
            StoredDocuments(reader, turns, endpoint.picture_side, cache_bytes=document_cache_bytes),
            canary=RemoteCanary(scorer, endpoint),
            cache_bytes=cache_bytes,
            calibration=calibration,
        )
        await reranker.check()
        api.requests.clear()
        try:
            yield reranker
        finally:
            threads.shutdown()
            await reader.close()
            await client.close()
