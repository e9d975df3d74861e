"""What a search needs of the services behind it.

`clients.py` asks them search by search, `joint_calls.py` for several searches at once.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from orchestrator_svc.content_room import Taking
from orchestrator_svc.services.clients import EncodedContents, EncodePurpose, FetchedItem, ShardHits
from orchestrator_svc.services.rerank_client import ShardScores
from tandem.contract.content import Content, Encoding, Modality, Tokens, TruncationPolicy
from tandem.contract.filters import Filter
from tandem.contract.model_description import ModelDescription


class ContentEncoder(Protocol):
    """encoder_svc; see `clients.EncoderClient` for what is raised."""

    async def encode(
        self,
        contents: Sequence[Content],
        deadline_time: float,
        *,
        purpose: EncodePurpose = EncodePurpose.INGEST,
        truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
    ) -> EncodedContents:
        """Returns what became of each content."""
        ...


class Shard(Protocol):
    """A shard as searches use it; see `clients.ShardClient` for what is raised."""

    async def search(
        self,
        index_id: str,
        embeddings: Sequence[NDArray[np.float32]],
        fingerprint: str,
        modality: Modality,
        retrieve_k: int,
        deadline_time: float,
        *,
        query_modality: Modality,
        minimum_sequence: int = 0,
        where: Filter | None = None,
        are_embeddings_included: bool = False,
    ) -> ShardHits:
        """Returns the items nearest to any of the embeddings, best first."""
        ...

    def note_late(self, waited_seconds: float) -> None:
        """Notes that a search of the shard was given up after so long."""
        ...

    async def get(
        self, index_id: str, item_ids: Sequence[str], deadline_time: float, taking: Taking
    ) -> Mapping[str, FetchedItem]:
        """Returns items by their ids, whose bytes are taken by `taking`."""
        ...

    async def get_encodings(
        self, index_id: str, item_ids: Sequence[str], deadline_time: float
    ) -> tuple[Mapping[str, Encoding], str]:
        """Returns stored encodings by item id, and the fingerprint."""
        ...


class CandidateScorer(Protocol):
    """A shard's rerank_svc; see `rerank_client.RerankClient` for what is raised."""

    @property
    def is_refusing(self) -> bool:
        """Whether `score` would be refused at once."""
        ...

    async def score(
        self,
        index_id: str,
        query: Tokens,
        fingerprint: str,
        item_ids: Sequence[str],
        deadline_time: float,
        model_version: int = 0,
    ) -> ShardScores:
        """Returns the scores of items that are there, all by one version of the model."""
        ...

    async def describe_model(self, deadline_time: float) -> ModelDescription:
        """Returns what it serves."""
        ...
