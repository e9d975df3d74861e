"""Caches match logits by query and item version."""

import hashlib
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tandem.chassis.access.callers import asking_caller
from tandem.chassis.capacity.cache_metrics import CacheMetrics
from tandem.chassis.capacity.single_flight_cache import SingleFlightCache
from tandem.contract.content import TextTokens, Tokens
from tandem.contract.inference_cost import InferenceCost

_NAME = "match_logits"
# Without the id, as tracemalloc counts it (tests/local/reranking/test_match_logit_cache.py).
_ENTRY_BYTES = 230


class PairKey(NamedTuple):
    """Identifies a logit for good: a query and one version of an item."""

    query_digest: bytes
    index_id: str
    item_id: str
    item_version: int


MatchLogitCache = SingleFlightCache[PairKey, float, InferenceCost]


def make_cache(
    max_bytes: int, is_kept: Callable[[float], bool] = lambda _: True
) -> MatchLogitCache:
    """Returns an empty cache of the logits that `is_kept` accepts; it is off with 0 bytes."""
    return SingleFlightCache(max_bytes, _entry_bytes, CacheMetrics(_NAME), is_kept)


def query_digest(query: Tokens, fingerprint: str, model_version: int) -> bytes:
    """Returns a hash of a query's tokens, the model's fingerprint and version, and the caller.

    By caller, so that neither cost nor time tells a caller what another has searched for.
    """
    name = f"{fingerprint}\0{model_version}\0{asking_caller()}"
    digest = hashlib.blake2b(name.encode(), digest_size=16)
    values = query.ids if isinstance(query, TextTokens) else query.values
    # A separator, so that different shapes never give equal bytes.
    digest.update(f"\0{values.dtype.str}{values.shape}\0".encode())
    digest.update(np.ascontiguousarray(values).data)
    return digest.digest()


def _entry_bytes(key: PairKey, _: float) -> int:
    return _ENTRY_BYTES + sys.getsizeof(key.item_id)
