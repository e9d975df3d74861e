"""A call of a thousand candidates holds the tokens of a few."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tandem.chassis.capacity.caller_turns import CallerTurns
from tandem.contract.deadline import Deadline
from tandem.contract.limits import MAX_RERANK_K
from tandem.local.item_store.item_store import ItemStore
from tandem.local.reranking.candidate_reader import CandidateReader
from tandem.local.reranking.reranker import PART_BYTES, ModelReranker
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.repository.manifest import Manifest
from tandem.stages.reranking import Candidates, ScoreQuery
from tests.support.rerank_svc.served_reranker import INDEX_ID, MAP_BYTES, QUERY, write_store

KIB = 1024


async def test_memory_does_not_grow_with_the_number_of_candidates(
    tiny_served: ServedModel, tiny_manifest: Manifest, tmp_path: Path
) -> None:
    """The tokens of a thousand pictures are 3 MiB here; there are 64 KiB of them at a time."""
    path = write_store(tmp_path / "shard", tiny_manifest)
    query = ScoreQuery(INDEX_ID, tiny_manifest.fingerprint)

    async def peak_bytes(count: int, part_bytes: int) -> int:
        """Returns what Python and numpy held at most, beside what was there before."""
        with ThreadPoolExecutor(2) as threads:
            turns = CallerTurns(threads, 2)
            reader = CandidateReader(
                lambda: ItemStore.open(path, 0, 1, readonly=True, map_bytes=MAP_BYTES),
                turns,
                tiny_manifest.fingerprint,
            )
            reranker = ModelReranker(tiny_served, reader, turns, part_bytes=part_bytes)
            await reranker.open()
            candidates = Candidates(QUERY, [f"i-{number}" for number in range(count)])
            tracemalloc.start()
            try:
                scored = await reranker.score(query, [candidates], Deadline.after(60))
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            await reader.close()
        assert len(scored.matches) == count
        return peak

    in_parts = await peak_bytes(MAX_RERANK_K, 64 * KIB)
    at_once = await peak_bytes(MAX_RERANK_K, PART_BYTES)
    few = await peak_bytes(20, 64 * KIB)
    print(f"{few // KIB} KiB for 20, {in_parts // KIB} in parts, {at_once // KIB} at once")
    assert at_once > 3_000 * KIB
    assert in_parts < 1_000 * KIB
