"""A search of several shards asks the model once."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tandem import Engine
from tandem.contract.content import TextContent
from tandem.model_io.inference.joined_scoring import JoinedScoring
from tandem.modeling.in_process.in_process_runner import InProcessRunner
from tests.support.pictures.pictures import encoded, noise

INDEX = "colours"
LONG_SECONDS = 600.0
TEXT = TextContent("two dogs left of one umbrella")


def test_the_pairs_of_all_shards_go_to_the_model_together(
    tmp_path: Path, tiny_repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One inference encodes the query, and one scores what both shards have."""
    infer, counts = InProcessRunner.infer, list[int]()

    async def seen(self: InProcessRunner, model: str, inputs: Any, *given: Any) -> Any:
        counts.append(len(next(iter(inputs.values()))))
        return await infer(self, model, inputs, *given)

    # However long a shard takes to read.
    patient = partial(JoinedScoring, LONG_SECONDS)
    monkeypatch.setattr("tandem.model_io.inference.served_model.JoinedScoring", patient)
    with Engine(tmp_path, model=tiny_repository, shards=2, caches=False) as engine:
        pictures = [(f"picture-{n}", encoded(noise(n), "PNG")) for n in range(9)]
        assert not any(each.error for each in engine.ingest(pictures, index_id=INDEX))
        monkeypatch.setattr(InProcessRunner, "infer", seen)
        found = engine.search(TEXT.text, index_id=INDEX)
        assert (found.rerank.reranked_depth, found.coverage.shard_count) == (9, 2)
        assert found.cost.pair_count == 9
        assert counts == [1, 9]
