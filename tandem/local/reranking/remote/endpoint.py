"""Describes the API of a remote cross-encoder."""

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

# An answer and its cursor carry the name.
_MAX_MODEL_BYTES: Final = 256


class RemoteShape(StrEnum):
    """Lists the APIs whose requests and answers are known."""

    VLLM_RERANK = "vllm-rerank"
    """vLLM's /v1/rerank: pictures are content parts."""
    VLLM_SCORE = "vllm-score"
    """vLLM's /score: the same contents, scores in the order of the documents."""
    JINA = "jina"
    """Jina's /v1/rerank: a document is {"text": …} or {"image": …}."""


class RemoteScores(StrEnum):
    """Says what an API's scores are."""

    PROBABILITY = "probability"
    """0 to 1: the match logit is the score's logit."""
    LOGIT = "logit"
    """Any number: the match logit itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteEndpoint:
    """Names an API and its model, and limits what one search may ask of it."""

    url: str
    """The whole address, for example https://rerank.example/v1/rerank."""
    model: str
    shape: RemoteShape = RemoteShape.VLLM_RERANK
    scores: RemoteScores = RemoteScores.PROBABILITY
    takes_picture_queries: bool = True
    batch_size: int = 16
    """Documents of one request."""
    max_request_count: int = 4
    """Requests at once."""
    request_seconds: float = 10.0
    """For one request, if its caller has more."""
    connect_seconds: float = 2.0
    picture_side: int = 1024
    """Larger pictures are scaled down to this longer side, in pixels."""

    def __post_init__(self) -> None:
        """Raises ValueError for an address or a model that no request can name."""
        _check_url(self.url)
        if not self.model:
            raise ValueError("a remote cross-encoder has no model's name; its API asks for one")
        if len(self.model.encode()) > _MAX_MODEL_BYTES:
            raise ValueError(f"the model's name has over {_MAX_MODEL_BYTES} bytes")

    @property
    def identity(self) -> str:
        """Returns the model's name with a digest of all that decides a score.

        The address is not part of it: the same model may move.
        """
        parts = (self.model, self.shape, self.scores, str(self.picture_side))
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        return f"{self.model}@{digest[:12]}"


def _check_url(url: str) -> None:
    """Raises ValueError for an address that no request can be sent to, or that has a password."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url!r} is not the address of an API: it starts with https://")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{url!r} is not the address of an API: {error}") from error
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "the address of the API has a name or a password in it; write the key into the file "
            "of RERANK_REMOTE_KEY_FILE"
        )
    if not host or not url.isprintable() or " " in url:
        raise ValueError(f"{url!r} is not the address of an API: it has no host, or blanks")
