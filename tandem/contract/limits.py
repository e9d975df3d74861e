"""States the limits that a server enforces on a request and its clients must keep to."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tandem.errors import BatchSizeOutOfRange, KOutOfRange

T = TypeVar("T")

MAX_MESSAGE_BYTES = 64 * 2**20
"""The largest message that gRPC sends or receives: ingest splits larger batches of pictures."""

MAX_SEARCH_COUNT = 64
"""Searches in one BatchSearchItems."""

MAX_CONTENT_COUNT = 64
"""Contents in one EncodeContents."""

MAX_EMBEDDING_COUNT = 64
"""Query embeddings in one SearchEmbeddings."""

MAX_NEIGHBOUR_CANDIDATE_COUNT = 64
"""Candidates in one FindNeighbours, and items in one ScoreGraph."""

MAX_SCORE_QUERY_COUNT = 64
"""Queries in one ScoreBatch."""

MAX_PAIR_COUNT = 1_024
"""Pairs of a query and a candidate in one ScoreBatch."""

MAX_RETRIEVE_K = 1_000
MAX_RERANK_K = 1_000
"""Also the candidates of one query in ScoreCandidates and ScoreBatch."""

MAX_DOCUMENT_COUNT = 200
"""Documents in one ScoreDocuments."""

MAX_INGEST_ITEM_COUNT = 64
"""Items in one message of an IngestItems stream."""

MAX_UPSERT_ITEM_COUNT = 256
"""Items in one UpsertItems."""

MAX_ITEM_ID_COUNT = 256
"""Item ids in one RemoveItems, DeleteItems or GetItems."""

MAX_PATCH_COUNT = 1_000
"""Patches in one ChangeItems or PatchItems."""

MAX_FILTER_TEXT_BYTES = 8_192
"""The text form of a filter; a larger filter travels as a message."""

DEFAULT_PAGE_SIZE = 100
MAX_PAGE_SIZE = 1_000
"""Ids in one ListItems or ListItemIds, and indexes in one ListIndexes or ListShardIndexes."""

MAX_NOTE_BYTES = 1 << 20
"""A note that a shard keeps."""

MAX_KEYWORDS_BYTES = 8_192
"""Keywords of one search."""

MAX_CONSISTENCY_TOKEN_COUNT = 256
"""Consistency tokens in one search."""


def parts_within(
    things: Iterable[T], size_of: Callable[[T], int], max_size: int, max_count: float = math.inf
) -> Iterator[list[T]]:
    """Yields the things in parts of at most that size and count; a larger thing is a part alone."""
    part: list[T] = []
    size = 0
    for thing in things:
        own_size = size_of(thing)
        if part and (size + own_size > max_size or len(part) == max_count):
            yield part
            part, size = [], 0
        part.append(thing)
        size += own_size
    if part:
        yield part


def check_batch_size(name: str, count: int, high: int) -> None:
    """Raises BatchSizeOutOfRange unless there are 1 to `high`."""
    if not 1 <= count <= high:
        raise BatchSizeOutOfRange(name=name, got=count, low=1, high=high)


def check_k(name: str, k: int, high: int) -> None:
    """Raises KOutOfRange unless it is 1 to `high`."""
    if not 1 <= k <= high:
        raise KOutOfRange(name=name, got=k, low=1, high=high)
