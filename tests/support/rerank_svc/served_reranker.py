"""A rerank_svc that tests call: its servicer behind a real server, with a real item store."""

from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NoReturn

import numpy as np

from rerank_svc.servicer import RerankServicer
from tandem.chassis.capacity.caller_turns import CallerTurns
from tandem.contract.content import (
    Encoding,
    ImageContent,
    ImageTokens,
    TextContent,
    TextTokens,
    Tokens,
)
from tandem.local.item_store.item_store import ItemStore
from tandem.local.reranking.candidate_reader import CandidateReader
from tandem.local.reranking.local_reranker import LocalReranker
from tandem.local.reranking.reranker import ModelReranker
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.repository.manifest import Manifest
from tandem.stages.item_write import Upsert
from tandem.stages.items import ItemRecord
from tandem.v1 import rerank_service_pb2 as pb
from tandem.v1.rerank_service_pb2_grpc import (
    RerankServiceStub,
    add_RerankServiceServicer_to_server,
)
from tandem.wire import tokens_to_proto
from tests.support.chassis import served as chassis
from tests.support.item_store.made_items import unit_vector

MAP_BYTES = 64 << 20
TIMEOUT_SECONDS = 20
INDEX_ID = "scenes"
OTHER_MODEL_INDEX_ID = "older"
IMAGE_COUNT = 1_000


def text_tokens(*ids: int) -> TextTokens:
    """Returns the tokens of a text with these ids."""
    return TextTokens(np.array(ids, dtype=np.int32))


def image_tokens(seed: int, manifest: Manifest) -> ImageTokens:
    """Returns random ones that the manifest's model can read."""
    shape = (manifest.image_token_count, manifest.token_width)
    return ImageTokens(np.random.default_rng(seed).standard_normal(shape).astype(np.float16))


def item(item_id: str, tokens: Tokens) -> ItemRecord:
    """Returns an item of these tokens; its content is none of theirs."""
    content = TextContent("words") if isinstance(tokens, TextTokens) else ImageContent(b"picture")
    return ItemRecord(item_id, content, Encoding(unit_vector(1), tokens))


QUERY = text_tokens(2, 10, 11, 12, 3)
TEXTS = {"t-short": text_tokens(2, 20, 3), "t-long": text_tokens(2, *range(20, 50), 3)}


def write_store(path: Path, tiny_manifest: Manifest) -> Path:
    """Writes a shard as index_svc would: images, texts, and what should not be there."""
    items = [
        *(item(f"i-{seed}", image_tokens(seed, tiny_manifest)) for seed in range(IMAGE_COUNT)),
        *(item(item_id, tokens) for item_id, tokens in TEXTS.items()),
        item("i-narrow", ImageTokens(np.zeros((49, 4), dtype=np.float16))),
        item("t-foreign", text_tokens(2, tiny_manifest.text.vocabulary_size, 3)),
        item("t-endless", text_tokens(*[5] * (tiny_manifest.text.max_tokens + 1))),
    ]
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    store.apply(
        [
            *(
                Upsert(INDEX_ID, tiny_manifest.fingerprint, items[start : start + 256])
                for start in range(0, len(items), 256)
            ),
            Upsert(OTHER_MODEL_INDEX_ID, "model-of-last-year", items[:1]),
        ]
    )
    store.close()
    return path


@asynccontextmanager
async def served(
    model: ServedModel,
    store_path: Path,
    *,
    warm: bool = True,
    cache_bytes: int = 0,
    token_cache_bytes: int = 0,
) -> AsyncIterator[RerankServiceStub]:
    """Serves a reranker that reads the store at the path; yields a stub that calls it."""
    with ThreadPoolExecutor(2) as threads:
        turns = CallerTurns(threads, 2)
        candidates = CandidateReader(
            lambda: ItemStore.open(store_path, 0, 1, readonly=True, map_bytes=MAP_BYTES),
            turns,
            model.manifest.fingerprint,
        )
        reranker = ModelReranker(
            model,
            candidates,
            turns,
            cache_bytes=cache_bytes,
            token_cache_bytes=token_cache_bytes,
        )
        try:
            async with serving(reranker, warm=warm) as stub:
                yield stub
        finally:
            threads.shutdown()
            await candidates.close()


def undescribed() -> NoReturn:
    """Describes no model, where nothing asks for it."""
    raise AssertionError("nothing asks for the model")


@asynccontextmanager
async def serving(
    reranker: ModelReranker, *, warm: bool = True
) -> AsyncIterator[RerankServiceStub]:
    """Serves the reranker; yields a stub that calls it."""
    if warm:
        await reranker.check()
    servicer = RerankServicer(LocalReranker(reranker, undescribed), TIMEOUT_SECONDS)
    register = partial(add_RerankServiceServicer_to_server, servicer)
    async with chassis.served(register, "rerank") as channel:
        yield RerankServiceStub(channel)


def request(
    item_ids: Sequence[str],
    fingerprint: str,
    query: Tokens | None = QUERY,
    index_id: str = INDEX_ID,
) -> pb.ScoreCandidatesRequest:
    """Returns a request of one query."""
    return pb.ScoreCandidatesRequest(
        index_id=index_id,
        query=tokens_to_proto(query) if query else None,
        model_fingerprint=fingerprint,
        item_ids=item_ids,
    )
