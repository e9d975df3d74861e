"""Puts a network of the zoo over a frozen image backbone, with the interface of a joint model.

Shapes: B batch, T text tokens, R image tokens, D width of an image token and of embeddings.
"""

import torch
from torch import Tensor, nn

from tandem.modeling.config import JointConfig
from tandem.modeling.image_tokens import image_backbone_of
from tandem.zoo.config import ZooConfig
from tandem.zoo.models import network_of


class ZooModel(nn.Module):
    """Combines an image backbone with a network of the zoo."""

    def __init__(self, zoo: ZooConfig) -> None:
        super().__init__()
        self.zoo = zoo
        self.image_backbone = image_backbone_of(zoo.inputs)
        self.network = network_of(zoo)

    @property
    def config(self) -> JointConfig:
        """What the model reads."""
        return self.zoo.inputs

    def embed_texts(self, input_ids_BT: Tensor, text_mask_BT: Tensor) -> Tensor:
        """Returns embeddings, float32 [B, D]; raises ValueError for a network without."""
        return self.network.embedding(self.network.read_texts(input_ids_BT, text_mask_BT))

    def embed_images(
        self, tokens_BRD: Tensor, cls_id: int, image_mask_BR: Tensor | None = None
    ) -> Tensor:
        """Returns embeddings, float32 [B, D]; raises ValueError for a network without.

        No network of the zoo reads a [CLS] with a single image.
        """
        mask_BR = _all_count(tokens_BRD) if image_mask_BR is None else image_mask_BR
        return self.network.embedding(self.network.read_images(tokens_BRD, mask_BR))

    def match_logits(
        self,
        input_ids_BT: Tensor,
        text_mask_BT: Tensor,
        tokens_BRD: Tensor,
        image_mask_BR: Tensor | None = None,
    ) -> Tensor:
        """Returns the match logits of text n with picture n, float32 [B].

        Of a network that only embeds, the cosine orders the pairs.
        """
        mask_BR = _all_count(tokens_BRD) if image_mask_BR is None else image_mask_BR
        images = self.network.read_images(tokens_BRD, mask_BR)
        texts = self.network.read_texts(input_ids_BT, text_mask_BT)
        return self.network.logits(self.network.row_by_row(images, texts))


def _all_count(tokens_BRD: Tensor) -> Tensor:
    return torch.ones(tokens_BRD.shape[:2], dtype=torch.int64, device=tokens_BRD.device)
