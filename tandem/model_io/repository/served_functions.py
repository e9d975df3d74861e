"""Says which Triton model gives each of a model's functions, and what its tensors mean.

A model is three functions. Two of them may name the same Triton model, as in a joint encoder, whose
weights are then in memory once.

    embed_text   token ids and mask to an embedding
    embed_image  pixels to an embedding, by one Triton model or several in a row; or a detector's
                 regions, which are then the image tokens
    score_pair   token ids and mask, image tokens and mask to a match logit
"""

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a tensor of a Triton model means. Shapes without the batch."""

    TOKEN_IDS = "token_ids"
    """int64 [T]"""
    TEXT_MASK = "text_mask"
    """int64 [T], 1 where the model attends."""
    PIXELS = "pixels"
    """uint8 [H, W, 3]"""
    IMAGE_TOKENS = "image_tokens"
    """float16 [R, D]"""
    IMAGE_MASK = "image_mask"
    """int64 [R]"""
    EMBEDDING = "embedding"
    """float32 [d], of unit length."""
    MATCH_LOGIT = "match_logit"
    """float32 [1]"""


TEXT_ROLES = (Role.TOKEN_IDS, Role.TEXT_MASK)
REGION_ROLES = (Role.IMAGE_TOKENS, Role.IMAGE_MASK)
PAIR_ROLES = (*TEXT_ROLES, *REGION_ROLES)


class TokenSource(StrEnum):
    """Where `score_pair` gets a stored picture's tokens."""

    STORED = "stored"
    """They are computed at ingest, and stored with the item."""
    POOLED = "pooled"
    """The same, but each is the mean of a 2 x 2 block of the grid."""
    RECOMPUTED = "recomputed"
    """They are computed at rerank from the stored picture, and cached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonModel:
    """Describes one Triton model: its files, and the roles of its inputs and outputs in order."""

    sha256: str
    """Of model.pt."""
    inputs: tuple[Role, ...]
    outputs: tuple[Role, ...]
    pt2_sha256: str | None = None
    """Of model.pt2, if the export has one."""

    @property
    def reads_pixels(self) -> bool:
        return Role.PIXELS in self.inputs

    @property
    def is_joint(self) -> bool:
        """Returns whether it gives embeddings and match logits, selected by their masks."""
        return self.inputs == PAIR_ROLES and Role.EMBEDDING in self.outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFunctions:
    """Names the Triton models of each function."""

    embed_text: str
    embed_image: tuple[str, ...]
    """In the order of their calls."""
    image_tokens: str | None = None
    """Gives the image tokens that `score_pair` reads, of the pair's pixels."""
    score_pair: str | None = None
    """None for a bi-encoder alone: results keep its order."""
