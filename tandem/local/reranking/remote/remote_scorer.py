"""Scores documents with a remote cross-encoder, as match logits."""

import math
from collections.abc import Sequence
from typing import Final

from tandem.errors import ModelOutputInvalid
from tandem.local.reranking.remote.endpoint import RemoteEndpoint, RemoteScores
from tandem.local.reranking.remote.http_client import RemoteHttpClient
from tandem.local.reranking.remote.shapes import AnswerInvalid, Document, read_scores, request_body

# A probability of exactly 0 or 1 is a rounded one: its logit would be infinite.
_LEAST_PROBABILITY: Final = 1e-6
# A response has single precision, where a larger number is infinite.
_MOST_LOGIT: Final = 3e38


class RemoteScorer:
    """Makes one request a call."""

    def __init__(self, client: RemoteHttpClient, endpoint: RemoteEndpoint) -> None:
        self._client = client
        self._endpoint = endpoint

    async def score(
        self, query: Document, documents: Sequence[Document], timeout_seconds: float
    ) -> list[float]:
        """Returns match logits in the order of the documents, at most `batch_size` of one kind.

        Raises what RemoteHttpClient raises, and ModelOutputInvalid for another count of scores, and
        for scores that are not numbers or out of range.
        """
        endpoint = self._endpoint
        body = request_body(endpoint.shape, endpoint.model, query, documents)
        answer = await self._client.post(body, timeout_seconds)
        try:
            scores = read_scores(endpoint.shape, answer, len(documents))
            return [self._logit(score) for score in scores]
        except AnswerInvalid as error:
            raise ModelOutputInvalid(model=endpoint.model, why=f"it answered {error}") from error

    def _logit(self, score: float) -> float:
        if not abs(score) <= _MOST_LOGIT:
            raise AnswerInvalid(f"a score of {score}")
        if self._endpoint.scores is RemoteScores.LOGIT:
            return score
        if not 0.0 <= score <= 1.0:
            raise AnswerInvalid(
                f"a score of {score:.4g}, which is not a probability; set "
                "RERANK_REMOTE_SCORES=logit if it answers logits"
            )
        probability = min(max(score, _LEAST_PROBABILITY), 1 - _LEAST_PROBABILITY)
        return math.log(probability / (1 - probability))
