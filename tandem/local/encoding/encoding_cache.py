"""Caches encodings by content and truncation policy."""

import hashlib
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tandem.chassis.capacity.cache_metrics import CacheMetrics
from tandem.chassis.capacity.single_flight_cache import SingleFlightCache
from tandem.contract.content import (
    Content,
    Encoding,
    ImageTokens,
    TextTokens,
    TruncationPolicy,
    content_bytes,
)
from tandem.errors import TandemError
from tandem.stages.encoding import EncodedBatch

_NAME = "query_encodings"
# Without the arrays' values, as tracemalloc counts it in the tests of this file.
_ENCODING_BYTES = 700
Number = TypeVar("Number", bound=np.generic)


class QueryKey(NamedTuple):
    """Identifies an encoding for good: content, truncation policy and model.

    By caller, so that neither cost nor time tells a caller what another has searched for.
    """

    content_digest: bytes
    truncation_policy: TruncationPolicy
    model_version: int
    caller: str = ""


EncodingCache = SingleFlightCache[QueryKey, Encoding | TandemError, EncodedBatch]


def make_cache(max_bytes: int) -> EncodingCache:
    """Returns an empty cache, which is off with 0 bytes. It does not cache errors."""
    return SingleFlightCache(max_bytes, _entry_bytes, CacheMetrics(_NAME), _is_encoding)


def content_digest(content: Content) -> bytes:
    """Returns a hash of the content and its kind."""
    digest = hashlib.blake2b(type(content).__name__.encode(), digest_size=16)
    digest.update(content_bytes(content))
    return digest.digest()


def detached(encoding: Encoding) -> Encoding:
    """Returns a copy with its own arrays, because a row of a batch would keep the whole batch."""
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
