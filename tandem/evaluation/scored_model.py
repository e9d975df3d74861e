"""Defines what an evaluation needs of a model, so that it measures every kind alike.

Shapes: B batch, T text tokens, R image tokens, D width of an image token and of embeddings.
"""

from typing import Protocol

from tokenizers import Tokenizer
from torch import Tensor, nn

from tandem.modeling.config import JointConfig


class ScoredModel(Protocol):
    """Embeds texts and pictures, and scores pairs."""

    @property
    def config(self) -> JointConfig:
        """What it reads."""
        ...

    @property
    def image_backbone(self) -> nn.Module:
        """What turns pixels into image tokens."""
        ...

    def embed_texts(self, input_ids_BT: Tensor, text_mask_BT: Tensor) -> Tensor:
        """Returns embeddings, float32 [B, D]."""
        ...

    def embed_images(
        self, tokens_BRD: Tensor, cls_id: int, image_mask_BR: Tensor | None = None
    ) -> Tensor:
        """Returns embeddings, float32 [B, D]."""
        ...

    def match_logits(
        self,
        input_ids_BT: Tensor,
        text_mask_BT: Tensor,
        tokens_BRD: Tensor,
        image_mask_BR: Tensor | None = None,
    ) -> Tensor:
        """Returns match logits, float32 [B]."""
        ...


class ScoredCheckpoint(Protocol):
    """Holds a model and its tokenizer."""

    @property
    def model(self) -> ScoredModel:
        """The model, in evaluation mode."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer."""
        ...
