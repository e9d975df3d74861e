"""Interfaces of the downstream services, and the types that they take and return.

`encoder_client`, `shard_client` and `rerank_client` call the services once a request; `batching`
sends the requests of several searches in one call.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from orchestrator_svc.content_room import Taking
from orchestrator_svc.hit import Hit, KeywordHit, Match
from tandem.chassis.deadline import Deadline
from tandem.contract.attribute_wire import CheckedFilter
from tandem.contract.attributes import Attributes
from tandem.contract.content import Content, Encoding, Modality, Tokens, TruncationPolicy
from tandem.contract.fusion_method import FusionMethod
from tandem.contract.index_description import ShardIndex
from tandem.contract.inference_cost import InferenceCost
from tandem.contract.model_description import ModelDescription
from tandem.contract.search_path import KeywordState, SearchPath
from tandem.errors import TandemError

Embeddings: TypeAlias = Sequence[NDArray[np.float32]]
"""One query's, float32 [d] of unit length each. The one nearest to an item gives its similarity."""


class EncodePurpose(enum.Enum):
    """Says what an encoding is for; names are the contract's."""

    QUERY = "query"
    INGEST = "ingest"


@dataclass(frozen=True, slots=True, eq=False)
class EncodedContents:
    """Holds what the encoder made of several contents."""

    outcomes: Sequence[Encoding | TandemError]
    """An encoding, or why there is none, for each content."""
    fingerprint: str
    cost: InferenceCost = field(default_factory=InferenceCost)
    is_model_unavailable: bool = False
    """The encodings come from the encoder's cache."""
    model_version: int = 0
    """The version that encoded all of them; 0 if none did, or the encoder does not name it."""


@dataclass(frozen=True, slots=True)
class ShardQuery:
    """Describes a search of one shard, without its embeddings.

    Searches with equal queries can share one call, whatever their embeddings.
    """

    index_id: str
    fingerprint: str
    modality: Modality
    """What to find."""
    query_modality: Modality
    retrieve_k: int
    filter: CheckedFilter | None = None
    """A condition on the items' attributes; None finds all."""
    minimum_sequence: int = 0
    """The shard answers once it has applied every change up to this one."""
    embeddings_included: bool = False
    keywords: str = ""
    """Words that find items too; empty for none."""


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
class FetchedItem:
    """Holds what a shard returns of an item."""

    content: Content | None
    """None if the read left it out."""
    attributes: Attributes
    size_bytes: int = field(default=0, compare=False)
    """On the wire."""


@dataclass(frozen=True, slots=True)
class ScoreQuery:
    """Names the index and the model by which candidates are scored.

    Searches with equal queries can share one call, whatever their tokens and candidates.
    """

    index_id: str
    fingerprint: str
    model_version: int = 0
    """0 leaves the choice to the service."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Pairs a query's tokens with the items of one shard to score against them."""

    tokens: Tokens
    item_ids: Sequence[str]
    content: Content | None = None
    """The query itself, for a cross-encoder that reads contents."""


@dataclass(frozen=True, slots=True)
class ShardScores:
    """Holds one shard's scores of candidates by the cross-encoder, and their cost."""

    matches: Mapping[str, Match]
    """By item id, without the items that no longer exist."""
    cost: InferenceCost = field(default_factory=InferenceCost)
    model_version: int = 0
    """The version that scored all of them; 0 if the service does not name it."""
    reranker: str = ""
    """The cross-encoder that scored them; empty if the service does not name it."""
    default_fusion: FusionMethod | None = None
    """How its authors combine both scores; None if the service does not say."""


@dataclass(frozen=True, slots=True, eq=False)
class ShardNeighbourQuery:
    """Describes a request for the neighbours that one shard has of a query and its candidates."""

    index_id: str
    fingerprint: str
    nodes: NDArray[np.float32]
    """[V, d], the query, then its candidates."""
    pool_k: int
    """Items of each modality, nearest to the query, among which neighbours are found."""
    pillar_k: int
    neighbour_k: int


@dataclass(frozen=True, slots=True, eq=False)
class ModalityNeighbours:
    """Holds the neighbours of one modality that one shard found."""

    pillars: NDArray[np.float32]
    """[L, d], nearest to the query, best first."""
    numbers: NDArray[np.int64]
    """[V, C], each node's nearest items; a number stands for one item of the shard."""
    similarities: NDArray[np.float32]
    """[V, C]."""


ShardNeighbours: TypeAlias = Mapping[Modality, ModalityNeighbours]


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Holds a query, its items and their neighbours, as a neighbour model reads them."""

    fingerprint: str
    """Of the model that made the embeddings."""
    query_modality: Modality
    nodes: NDArray[np.float32]
    """[V, d], the query, then its items."""
    item_pillars: NDArray[np.float32]
    """[L, d]."""
    query_pillars: NDArray[np.float32]
    """[L, d]."""
    near: Mapping[Modality, NDArray[np.int64]]
    """[V, C], each node's nearest items of that modality; a number stands for one item."""


@dataclass(frozen=True, slots=True)
class GraphScores:
    """Holds the scores of a graph's items, in their order."""

    scores: Sequence[float]
    neighbour_model: str
    cost: InferenceCost = field(default_factory=InferenceCost)


@dataclass(frozen=True, slots=True)
class ShardDescription:
    """Holds one shard's description of an index."""

    fingerprint: str
    embedding_dimension: int
    index: ShardIndex


class IndexDescriber(Protocol):
    """Describes an index on one shard, as index_svc does; `ShardClient` says what it raises."""

    async def describe_index(self, index_id: str, deadline: Deadline) -> ShardDescription:
        """Returns the state of the index."""
        ...


class NeighbourFinder(Protocol):
    """Finds neighbours on one shard, as index_svc does; `ShardClient` says what it raises."""

    async def find_neighbours(
        self, query: ShardNeighbourQuery, deadline: Deadline
    ) -> ShardNeighbours:
        """Returns the neighbours among the shard's items, by modality."""
        ...


class GraphScorer(Protocol):
    """Scores graphs, as every rerank_svc does; `RerankClient` says what it raises."""

    @property
    def is_refusing_graphs(self) -> bool:
        """Whether the circuit breaker would refuse a graph now."""
        ...

    async def score_graph(self, graph: Graph, deadline: Deadline) -> GraphScores:
        """Returns the scores of the graph's items."""
        ...

    async def describe_model(self, deadline: Deadline) -> ModelDescription:
        """Returns the description of the model that is served."""
        ...


class ContentEncoder(Protocol):
    """Encodes contents, as encoder_svc does; `EncoderClient` says what it raises."""

    async def encode(
        self,
        contents: Sequence[Content],
        deadline: Deadline,
        *,
        purpose: EncodePurpose = EncodePurpose.INGEST,
        truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
    ) -> EncodedContents:
        """Returns each content's encoding or error."""
        ...


class ShardSearcher(Protocol):
    """Searches one shard, as index_svc does; `ShardClient` says what it raises."""

    async def search(
        self, query: ShardQuery, embeddings: Embeddings, deadline: Deadline
    ) -> ShardHits:
        """Returns the items nearest to any of the embeddings, best first."""
        ...

    def note_late(self, waited_seconds: float) -> None:
        """Notes that a search of the shard was abandoned after that time."""
        ...


class ItemReader(Protocol):
    """Reads the items of one shard, as index_svc does; `ShardClient` says what it raises."""

    async def get(
        self, index_id: str, item_ids: Sequence[str], deadline: Deadline, taking: Taking
    ) -> Mapping[str, FetchedItem]:
        """Returns items by their ids, and has `taking` account for their bytes."""
        ...

    async def get_encodings(
        self, index_id: str, item_ids: Sequence[str], deadline: Deadline
    ) -> tuple[Mapping[str, Encoding], str]:
        """Returns stored encodings by item id, and the fingerprint."""
        ...


class CandidateScorer(Protocol):
    """Scores candidates of one shard, as rerank_svc does; `RerankClient` says what it raises."""

    @property
    def is_refusing(self) -> bool:
        """Whether the circuit breaker would refuse a call now."""
        ...

    async def score(
        self, query: ScoreQuery, candidates: Candidates, deadline: Deadline
    ) -> ShardScores:
        """Returns the scores of the items that exist, all by one version of the model."""
        ...


class ModelDescriber(Protocol):
    """Describes a served cross-encoder; `RerankClient` says what it raises."""

    @property
    def is_refusing(self) -> bool:
        """Whether the circuit breaker would refuse a call now."""
        ...

    async def describe_model(self, deadline: Deadline) -> ModelDescription:
        """Returns the description of the model that is served."""
        ...
