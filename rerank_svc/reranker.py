"""A query and the ids of candidates into match scores."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from tandem.content import ImageTokens, TextTokens, Tokens
from tandem.corpus.item_store import ItemStore
from tandem.errors import ModelMismatch, ServiceUnavailable, TokensInvalid
from tandem.model_io.canary import check_matching
from tandem.model_io.served_joint_model import ServedJointModel


@dataclass(frozen=True, slots=True)
class MatchScore:
    """The cross-encoder's log odds of a match, and the same as a probability."""

    logit: float
    probability: float


@dataclass(frozen=True, slots=True)
class ScoredBatch:
    """Scores in the order of the ids, None for items that are gone; and where the time went."""

    scores: Sequence[MatchScore | None]
    read_seconds: float
    inference_seconds: float


class Reranker:
    """Scores candidates whose tokens lie in one shard's item store."""

    def __init__(
        self, model: ServedJointModel, open_store: Callable[[], ItemStore], threads: Executor
    ) -> None:
        """`open_store` is called until it succeeds: index_svc makes the store, and may be later."""
        self._model = model
        self._open_store = open_store
        self._threads = threads
        self._store: ItemStore | None = None

    def close(self) -> None:
        """Closes the store; no call may be under way."""
        if self._store is not None:
            self._store.close()

    async def score(
        self,
        index_id: str,
        query: Tokens,
        fingerprint: str,
        item_ids: Sequence[str],
        timeout_seconds: float,
    ) -> ScoredBatch:
        """Returns a score for each id.

        Raises IndexNotFound, ModelMismatch where query or served model are not the index's,
        TokensInvalid unless the query is a text and the candidates images or the other way round.
        """
        start_time = time.monotonic()
        loop = asyncio.get_running_loop()
        candidates = await loop.run_in_executor(
            self._threads, self._read, index_id, fingerprint, item_ids
        )
        present = [(row, tokens) for row, tokens in enumerate(candidates) if tokens is not None]
        read_time = time.monotonic()
        scores: list[MatchScore | None] = [None] * len(item_ids)
        if present:
            pairs = [self._pair(query, tokens) for _, tokens in present]
            inferred = await self._model.match_logits(
                [text.ids for text, _ in pairs],
                [image.values for _, image in pairs],
                timeout_seconds - (read_time - start_time),
            )
            for (row, _), logit in zip(present, inferred.values, strict=True):
                scores[row] = MatchScore(float(logit), _probability(float(logit)))
        return ScoredBatch(scores, read_time - start_time, time.monotonic() - read_time)

    async def check(self) -> None:
        """Opens the store and scores one made-up pair; raises a TandemError where either fails."""
        if self._store is None:
            self._store = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._open_store
            )
        await check_matching(self._model)

    def _read(
        self, index_id: str, fingerprint: str, item_ids: Sequence[str]
    ) -> list[Tokens | None]:
        if self._store is None:
            raise ServiceUnavailable(service="rerank", why="its item store is not open yet")
        stored = self._store.index_fingerprint(index_id)
        for other in (fingerprint, self._model.manifest.fingerprint):
            if other != stored:
                raise ModelMismatch(request=other, index=stored)
        return self._store.read_tokens(index_id, item_ids)

    def _pair(self, query: Tokens, candidate: Tokens) -> tuple[TextTokens, ImageTokens]:
        match query, candidate:
            case (TextTokens() as text, ImageTokens() as image) | (
                ImageTokens() as image,
                TextTokens() as text,
            ):
                self._check_text(text)
                self._check_image(image)
                return text, image
            case _:
                raise TokensInvalid(why="query and candidate are of one modality")

    def _check_text(self, text: TextTokens) -> None:
        manifest = self._model.manifest
        if len(text.ids) > manifest.max_text_tokens:
            raise TokensInvalid(
                why=f"a text has {len(text.ids)} token ids, the limit is {manifest.max_text_tokens}"
            )
        if text.ids.max() >= manifest.vocabulary_size:
            raise TokensInvalid(
                why=f"token id {text.ids.max()} is not among the model's {manifest.vocabulary_size}"
            )

    def _check_image(self, image: ImageTokens) -> None:
        manifest = self._model.manifest
        expected = (manifest.image_token_count, manifest.token_width)
        if image.values.shape != expected:
            raise TokensInvalid(
                why=f"an image has tokens of shape {image.values.shape} instead of {expected}"
            )


def _probability(logit: float) -> float:
    """Returns the sigmoid, without overflow for any finite logit."""
    if logit >= 0:
        return 1.0 / (1.0 + math.exp(-logit))
    return math.exp(logit) / (1.0 + math.exp(logit))
