"""Computes the image tokens of stored pictures, for a model whose index has none.

Shapes: n pictures, H W pixels, R image tokens, D token width.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tandem.chassis.capacity.cache_metrics import CacheMetrics
from tandem.chassis.capacity.caller_turns import CallerTurns
from tandem.chassis.capacity.single_flight_cache import Computation, SingleFlightCache
from tandem.contract.content import Content, ImageContent
from tandem.contract.deadline import Deadline
from tandem.contract.inference_cost import InferenceCost
from tandem.errors import ImageTooLarge, ImageUnreadable
from tandem.local.reranking.metrics import count_cost
from tandem.model_io.inference.model_runner import ImageTokenArray
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.pictures.heif_reader import HeifReader
from tandem.model_io.pictures.image import decode_image, decoding_bytes
from tandem.model_io.pictures.image_rules import ImageRules
from tandem.model_io.repository.priority import Priority
from tandem.stages.candidate_store import CandidateStore
from tandem.stages.reranking import ScoreQuery

_NAME = "image_tokens"
# Without the array's values and the ids.
_ENTRY_BYTES = 500
# A thousand pictures of MAX_IMAGE_BYTES, read at once, would take 32 GiB.
_READ_COUNT = 16
# The work that DeadlineExceeded names.
_WORK = "the reading of the pictures"


class PictureKey(NamedTuple):
    """Identifies a picture for good: one version of an item."""

    index_id: str
    item_id: str
    item_version: int


class PictureTokens:
    """Computes and caches tokens by picture; versions of a model share them."""

    def __init__(
        self,
        reader: CandidateStore,
        turns: CallerTurns,
        cache_bytes: int,
        heif: HeifReader | None = None,
    ) -> None:
        """Caches up to `cache_bytes` of tokens; 0 turns the cache off."""
        self._reader = reader
        self._turns = turns
        self._heif = heif
        self._cache: SingleFlightCache[PictureKey, ImageTokenArray | None, InferenceCost] = (
            SingleFlightCache(
                cache_bytes, _entry_bytes, CacheMetrics(_NAME), lambda tokens: tokens is not None
            )
        )

    async def tokens(
        self,
        model: ServedModel,
        keys: Sequence[PictureKey],
        asked: ScoreQuery,
        deadline: Deadline,
    ) -> tuple[dict[PictureKey, ImageTokenArray], InferenceCost]:
        """Returns the tokens [R, D] of one index's pictures, and the cost of those it computed.

        Leaves out pictures that were written again or deleted meanwhile, and unreadable ones.
        Raises errors of the store and the model, and DeadlineExceeded.
        """
        if not keys:
            return {}, InferenceCost()

        async def compute(
            lacking: Sequence[PictureKey],
        ) -> Computation[ImageTokenArray | None, InferenceCost]:
            pixels = await self._pixels(model, lacking, asked, deadline)
            if not pixels:
                return Computation([None] * len(lacking), InferenceCost())
            made = await model.image_tokens(
                np.stack(list(pixels.values())), deadline.left_for(_WORK), Priority.RERANK
            )
            count_cost(made.cost)
            # Copies, because a row would keep the whole batch.
            rows = {key: row.copy() for key, row in zip(pixels, made.values, strict=True)}
            return Computation([rows.get(key) for key in lacking], made.cost)

        lookup = await self._cache.get(keys, compute, deadline.left_for(_WORK))
        found = {
            key: tokens
            for key, tokens in zip(keys, lookup.values, strict=True)
            if tokens is not None
        }
        return found, sum(lookup.reports, InferenceCost())

    async def _pixels(
        self,
        model: ServedModel,
        keys: Sequence[PictureKey],
        asked: ScoreQuery,
        deadline: Deadline,
    ) -> Mapping[PictureKey, NDArray[np.uint8]]:
        rules = model.manifest.pair_image
        assert rules is not None, "only a model with score_pair has pairs"
        pixels: dict[PictureKey, NDArray[np.uint8]] = {}
        for start in range(0, len(keys), _READ_COUNT):
            part = keys[start : start + _READ_COUNT]
            item_ids = [key.item_id for key in part]
            found = await self._reader.contents(asked, item_ids)
            stored = {
                key: each.content
                for key in part
                if (each := found.get(key.item_id)) is not None and each.version == key.item_version
            }
            decoded = await asyncio.gather(
                *(
                    self._turns.run(
                        partial(_decoded, content, rules, self._heif, deadline),
                        decoding_bytes(content),
                    )
                    for content in stored.values()
                )
            )
            pixels |= {
                key: each for key, each in zip(stored, decoded, strict=True) if each is not None
            }
        return pixels


def _decoded(
    content: Content, rules: ImageRules, heif: HeifReader | None, deadline: Deadline
) -> NDArray[np.uint8] | None:
    if not isinstance(content, ImageContent):
        return None
    try:
        return decode_image(content.image_bytes, rules, heif, deadline)
    except (ImageUnreadable, ImageTooLarge):  # another release may have taken it
        return None


def _entry_bytes(key: PictureKey, tokens: ImageTokenArray | None) -> int:
    return _ENTRY_BYTES + len(key.item_id) + (0 if tokens is None else tokens.nbytes)
