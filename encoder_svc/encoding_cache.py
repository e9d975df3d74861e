"""Encodings that are kept, each of one content read in one way."""

import hashlib
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from encoder_svc.encoder import EncodedBatch
from tandem.chassis.cache_metrics import cache_metrics
from tandem.chassis.single_flight_cache import SingleFlightCache
from tandem.contract.content import (
    Content,
    Encoding,
    ImageTokens,
    TextContent,
    TextTokens,
    TruncationPolicy,
)
from tandem.errors import TandemError

_NAME = "query_encodings"
# All but the arrays' values, as tracemalloc counts it (tests/encoder_svc/test_encoding_cache.py).
_ENCODING_BYTES = 700
Number = TypeVar("Number", bound=np.generic)


class QueryKey(NamedTuple):
    """A content, how it is read where it is too long, and by what: an encoding's, for good."""

    content_digest: bytes
    truncation_policy: TruncationPolicy
    model_version: int


EncodingCache = SingleFlightCache[QueryKey, Encoding | TandemError, EncodedBatch]


def make_cache(max_bytes: int) -> EncodingCache:
    """Returns an empty cache; 0 bytes for none. Errors pass through it and are not kept."""
    return SingleFlightCache(max_bytes, _entry_bytes, cache_metrics(_NAME), _is_encoding)


def content_digest(content: Content) -> bytes:
    """Returns a hash of the content and its modality."""
    digest = hashlib.blake2b(content.modality.value.encode(), digest_size=16)
    if isinstance(content, TextContent):
        digest.update(content.text.encode())
    else:
        digest.update(content.image_bytes)
    return digest.digest()


def detached(encoding: Encoding) -> Encoding:
    """Returns it with arrays of its own: a row of a batch would keep the whole batch in memory."""
    tokens = encoding.tokens
    return replace(
        encoding,
        embedding=_own(encoding.embedding),
        tokens=TextTokens(_own(tokens.ids))
        if isinstance(tokens, TextTokens)
        else ImageTokens(_own(tokens.values)),
        further_windows=tuple(map(detached, encoding.further_windows)),
    )


def _own(values: NDArray[Number]) -> NDArray[Number]:
    return values if values.base is None else values.copy()


def _is_encoding(outcome: Encoding | TandemError) -> bool:
    return isinstance(outcome, Encoding)


def _entry_bytes(_: QueryKey, outcome: Encoding | TandemError) -> int:
    return _encoding_bytes(outcome) if isinstance(outcome, Encoding) else 0


def _encoding_bytes(encoding: Encoding) -> int:
    tokens = encoding.tokens
    values = tokens.ids if isinstance(tokens, TextTokens) else tokens.values
    return (
        _ENCODING_BYTES
        + encoding.embedding.nbytes
        + values.nbytes
        + sum(map(_encoding_bytes, encoding.further_windows))
    )
