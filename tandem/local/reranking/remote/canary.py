"""Refuses a remote cross-encoder whose scores depend on the batch, or say nothing."""

import asyncio
import base64
import io
import math
import time
from collections.abc import Callable, Sequence
from typing import Final

from PIL import Image

from tandem.errors import ModelOutputInvalid, TandemError
from tandem.local.reranking.remote.endpoint import RemoteEndpoint
from tandem.local.reranking.remote.remote_scorer import RemoteScorer
from tandem.local.reranking.remote.shapes import Document

DEFAULT_TOLERANCE: Final = 0.05
"""Of a probability: reduced precision moves a score by a few thousandths between batches."""

# Logits of different pairs that differ by less are the same score.
_FLAT_SPREAD: Final = 1e-3
_SIDE: Final = 224
_COLOURS: Final = ("red", "green", "blue")
# A canary costs a dozen pairs, which an API may charge for.
_PROVEN_SECONDS: Final = 600.0
_FAILED_SECONDS: Final = 5.0
# Below the health check's 5 s: ten calls of a large or busy model may take longer.
_WAIT_SECONDS: Final = 4.0


class RemoteCanary:
    """Scores synthetic contents one by one and together, and compares the scores."""

    def __init__(
        self,
        scorer: RemoteScorer,
        endpoint: RemoteEndpoint,
        *,
        tolerance: float = DEFAULT_TOLERANCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Allows probabilities of a pair to differ by `tolerance` between two batches."""
        self._scorer = scorer
        self._endpoint = endpoint
        self._tolerance = tolerance
        self._clock = clock
        self._error: TandemError | None = None
        self._due_time = -math.inf
        self._sending: asyncio.Task[TandemError | None] | None = None

    async def check(self) -> None:
        """Raises what the last canary found; sends one every ten minutes, 5 s after a failure.

        Until a slow one has ended, the result before it holds; the first one is waited for.
        """
        if self._sending is None and self._clock() >= self._due_time:
            self._sending = asyncio.create_task(self._sent())
        if self._sending is not None:
            is_first = self._due_time == -math.inf
            await asyncio.wait([self._sending], timeout=None if is_first else _WAIT_SECONDS)
            if self._sending.done():
                self._error, self._sending = self._sending.result(), None
                seconds = _PROVEN_SECONDS if self._error is None else _FAILED_SECONDS
                self._due_time = self._clock() + seconds
        if self._error is not None:
            raise self._error.kept()

    async def _sent(self) -> TandemError | None:
        words = [Document(text=f"a plain {colour} square") for colour in _COLOURS]
        pictures = [Document(picture_uri=_square_uri(colour)) for colour in _COLOURS]
        try:
            logits = await self._compared(words[0], pictures)
            if self._endpoint.takes_picture_queries:
                logits += await self._compared(pictures[0], words)
        except TandemError as error:
            return error.kept()
        spread = max(logits) - min(logits)
        if not spread >= _FLAT_SPREAD:
            return self._invalid(
                f"its scores are flat: {len(logits)} different pairs have {logits[0]:.4f} to "
                f"within {spread:.1g}; it scores without its head, or without its prompt"
            )
        return None

    async def _compared(self, query: Document, documents: Sequence[Document]) -> list[float]:
        """Returns each document's own logit; raises ModelOutputInvalid if its batch changes it."""
        alone = [(await self._score(query, [each]))[0] for each in documents]
        count = min(len(documents), self._endpoint.batch_size)
        for order in (range(count), range(count - 1, -1, -1)):
            together = await self._score(query, [documents[number] for number in order])
            for number, logit in zip(order, together, strict=True):
                one, other = _probability(alone[number]), _probability(logit)
                if abs(one - other) > self._tolerance:
                    raise self._invalid(
                        f"its scores depend on the batch: a pair has {one:.3f} alone and "
                        f"{other:.3f} among {count}; they may differ by "
                        f"{self._tolerance:g} (RERANK_REMOTE_TOLERANCE_SHARE)"
                    )
        return alone

    async def _score(self, query: Document, documents: Sequence[Document]) -> list[float]:
        return await self._scorer.score(query, documents, self._endpoint.request_seconds)

    def _invalid(self, why: str) -> ModelOutputInvalid:
        return ModelOutputInvalid(model=self._endpoint.model, why=why)


def _square_uri(colour: str) -> str:
    file = io.BytesIO()
    Image.new("RGB", (_SIDE, _SIDE), colour).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _probability(logit: float) -> float:
    return 1 / (1 + math.exp(-logit)) if logit > -500 else 0.0
