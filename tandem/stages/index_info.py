"""Defines what a shard knows of an index's model, and holds embeddings to it."""

from collections.abc import Iterable, Sized
from dataclasses import dataclass

from tandem.errors import EmbeddingInvalid, ModelMismatch


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """Describes the model that an index was created with."""

    fingerprint: str
    dimension: int

    def check(self, fingerprint: str, embeddings: Iterable[Sized]) -> None:
        """Raises ModelMismatch, or EmbeddingInvalid for another dimension."""
        if fingerprint != self.fingerprint:
            raise ModelMismatch(request=fingerprint, index=self.fingerprint)
        for each in embeddings:
            if len(each) != self.dimension:
                raise EmbeddingInvalid(
                    why=f"it has {len(each)} dimensions instead of {self.dimension}"
                )
