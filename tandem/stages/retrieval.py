"""Defines one shard of an index as a search sees it: a query in, hits out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tandem.contract.content import Modality
from tandem.contract.filtering.attribute_wire import CheckedFilter
from tandem.contract.filtering.filters import Filter
from tandem.contract.identifiers import check_fingerprint, check_index_id
from tandem.contract.index_description import IndexPart
from tandem.contract.limits import (
    MAX_EMBEDDING_COUNT,
    MAX_KEYWORDS_BYTES,
    MAX_RETRIEVE_K,
    check_batch_size,
    check_k,
)
from tandem.contract.search_path import KeywordState, SearchPath
from tandem.errors import RequestMalformed
from tandem.stages.hit import Hit, KeywordHit
from tandem.stages.unit_length import check_unit_lengths

Embeddings: TypeAlias = Sequence[NDArray[np.float32]]
"""One query's, float32 [d] of unit length each. The one nearest to an item gives its similarity."""


@dataclass(frozen=True, slots=True)
class ShardQuery:
    """Describes a search of one shard, for one or several embeddings.

    Searches with equal queries can share one call: their embeddings do not count. Raises
    IndexIdInvalid, KOutOfRange, BatchSizeOutOfRange, EmbeddingInvalid, RequestMalformed.
    """

    index_id: str
    fingerprint: str
    """Of the model that made the embeddings."""
    modality: Modality
    """Of the items to find."""
    query_modality: Modality
    """Of what the embeddings encode."""
    retrieve_k: int
    embeddings: Embeddings = field(compare=False, repr=False)
    """1 to MAX_EMBEDDING_COUNT. Each is searched on its own."""
    filter: CheckedFilter | None = None
    """A condition on the items' attributes; None finds all."""
    minimum_sequence: int = 0
    """The shard answers once it has applied every change up to this one."""
    embeddings_included: bool = False
    keywords: str = ""
    """Words that find items too; empty for none."""

    def __post_init__(self) -> None:
        check_index_id(self.index_id)
        check_fingerprint(self.fingerprint)
        check_k("retrieve_k", self.retrieve_k, MAX_RETRIEVE_K)
        check_batch_size("queries", len(self.embeddings), MAX_EMBEDDING_COUNT)
        for embedding in self.embeddings:  # of one length each: the index says which is right
            check_unit_lengths(embedding[np.newaxis])
        if self.minimum_sequence < 0:
            raise RequestMalformed(why=f"minimum_sequence is {self.minimum_sequence}")
        if len(self.keywords.encode()) > MAX_KEYWORDS_BYTES:
            raise RequestMalformed(why=f"keywords have more than {MAX_KEYWORDS_BYTES:,} bytes")

    @property
    def where(self) -> Filter | None:
        """Returns the filter to evaluate."""
        return None if self.filter is None else self.filter.tree

    @property
    def direction(self) -> str:
        """Returns for example "text_to_image"."""
        return f"{self.query_modality.value}_to_{self.modality.value}"


@dataclass(frozen=True, slots=True)
class ShardHits:
    """Holds a shard's nearest items, best first, and its item count of the index and modality."""

    hits: Sequence[Hit]
    item_count: int
    path: SearchPath
    """How they were found."""
    keyword_hits: Sequence[KeywordHit] = ()
    """What the words found, best first."""
    keyword_state: KeywordState | None = None
    """Whether the shard searched by words; None if none were to be searched for."""


@dataclass(frozen=True, slots=True)
class ShardDescription:
    """Holds one shard's description of an index."""

    fingerprint: str
    embedding_dimension: int
    parts: Sequence[IndexPart]
    """Of each modality."""
    keyword_state: KeywordState
    """Whether this shard can search by words."""
