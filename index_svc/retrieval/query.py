"""Defines the query that a shard, its indexes and live recall all read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from index_svc.retrieval.hit import F32
from tandem.contract.content import Modality
from tandem.contract.filters import Filter


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """Describes one search of an index, for one or several embeddings."""

    index_id: str
    fingerprint: str
    """Of the model that made the embeddings."""
    modality: Modality
    """Of the items to find."""
    query_modality: Modality
    """Of what the embeddings encode."""
    embeddings: Sequence[F32]
    """[d] each; every embedding is searched on its own."""
    k: int
    where: Filter | None = None
    minimum_sequence: int = 0
    are_embeddings_included: bool = False
    keywords: str = ""
    """Words that find items too; empty for none."""

    @property
    def direction(self) -> str:
        """Returns for example "text_to_image"."""
        return f"{self.query_modality.value}_to_{self.modality.value}"
