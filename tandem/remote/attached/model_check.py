"""Measures whether a model made an index's vectors, by encoding some pictures again.

A vector's deviation is 1 - its cosine to the embedding made now, in units of what lies between the
embeddings of two pictures. Of the same model it is near 0; of another about 1, however narrow the
cone of the embeddings is.

Shapes: S pictures of the sample, D dimensions.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tandem.contract.content import Encoding, Modality
from tandem.contract.deadline import Deadline
from tandem.contract.limits import MAX_PAGE_SIZE
from tandem.errors import ItemCorrupt
from tandem.remote.attached.attachment import Checked
from tandem.stages.encoding import Encoder
from tandem.stages.items import ItemsQuery
from tandem.stages.retrieval import ShardQuery
from tandem.stages.shard import Shard

MAX_DEVIATION = 0.2
"""Of nine tenths of the sample: benchmarks/results/attach_deviation_2026-11-29.md."""
_SAMPLE_COUNT, _LEAST_COUNT = 64, 8
_LISTED_COUNT = 100_000
_CALL_SECONDS = 60.0


class ModelRefused(ValueError):
    """The vectors are not those of the served model, or cannot be compared with it."""


async def check_model(shard: Shard, index_id: str, encoder: Encoder, claim: Checked) -> Checked:
    """Returns the claim with what was measured; raises ModelRefused, and errors of all three."""
    stored_SD, made_SD = await _sample(shard, index_id, encoder)
    count = len(made_SD)
    if count < _LEAST_COUNT:
        raise ModelRefused(f"{index_id}: {count} pictures can be encoded, not {_LEAST_COUNT}")
    own = ShardQuery(index_id, claim.fingerprint, Modality.IMAGE, Modality.IMAGE, 1, [*stored_SD])
    found = (await shard.search(own, Deadline.after(_CALL_SECONDS))).found
    similarities = [each.hits[0].similarity if each.hits else 0.0 for each in found]
    if not np.allclose(similarities, 1.0, atol=1e-3):
        raise ModelRefused(
            f"{index_id}: vectors find themselves by similarities of {min(similarities):.3f} to "
            f"{max(similarities):.3f}, not 1: have an index by cosine, or vectors of unit length"
        )
    pairs_SS = made_SD @ made_SD.T
    between = 1 - np.median(pairs_SS[np.triu_indices(count, 1)])
    deviations_S = (1 - (stored_SD * made_SD).sum(axis=1)) / between
    deviation = float(np.quantile(deviations_S, 0.9))
    if not deviation <= MAX_DEVIATION:
        raise ModelRefused(
            f"{index_id}: the served model did not make these vectors: nine tenths of {count} "
            f"deviate by up to {deviation:.3f}, and {MAX_DEVIATION} is allowed"
        )
    return replace(claim, picture_count=count, deviation=deviation)


async def _sample(
    shard: Shard, index_id: str, encoder: Encoder
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Returns the stored and the new embeddings [S, D] of pictures that can be read."""
    item_ids: list[str] = []
    while len(item_ids) % MAX_PAGE_SIZE == 0 and len(item_ids) < _LISTED_COUNT:
        after, deadline = (item_ids or [""])[-1], Deadline.after(_CALL_SECONDS)
        if not (page := await shard.list_item_ids(index_id, after, MAX_PAGE_SIZE, deadline)):
            break
        item_ids += page
    stored, made = [], []
    for item_id in item_ids[:: max(1, len(item_ids) // _SAMPLE_COUNT)][:_SAMPLE_COUNT]:
        deadline = Deadline.after(_CALL_SECONDS)
        query = ItemsQuery(index_id, [item_id], encodings_included=True)
        try:
            items = (await shard.get(query, deadline)).items.values()
        except ItemCorrupt:
            continue
        for item in items:
            if item.content and item.encoding:
                [outcome] = (await encoder.encode([item.content], deadline)).outcomes
                if isinstance(outcome, Encoding):
                    stored.append(item.encoding.embedding)
                    made.append(outcome.embedding)
    return np.asarray(stored), np.asarray(made)
