"""Defines what OSCAR, UNITER and M3P share: one encoder over text tokens and a detector's regions.

One side alone gives the bi-encoder's embedding, the mean over all positions that count; both give
the cross-encoder's match logit (Geigle et al. 2022, section 3). The layers are BERT's.

Shapes: B batch, T text tokens, R regions, L = T + R, D numbers of a region, W width.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tandem.modeling.config import JointConfig
from tandem.modeling.joint_encoder import PostNormLayer, mean_of_counted


class MatchHead(nn.Module):
    """Turns the first position into a match logit."""

    def __init__(
        self, width: int, classifier: nn.Module, score_count: int, *, has_pooler: bool = True
    ) -> None:
        """`classifier` gives one number, the logit, or two, for no match and match."""
        super().__init__()
        self.has_one_score = score_count == 1
        self.has_match_first = False
        """Whether the first of two numbers means a match, as VisualBERT's does."""
        self.pooler = nn.Linear(width, width) if has_pooler else None
        self.classifier = classifier

    def forward(self, first_BW: Tensor) -> Tensor:
        """Returns [B, 1]; of two numbers their difference, which ranks as the probability does."""
        pooled_BW = first_BW if self.pooler is None else torch.tanh(self.pooler(first_BW))
        scores: Tensor = self.classifier(pooled_BW)
        if self.has_one_score:
            return scores
        match_B1 = scores[:, 1:] - scores[:, :1]
        return -match_B1 if self.has_match_first else match_B1


class RegionEncoder(nn.Module, ABC):
    """Reads text tokens, a detector's regions, or both; a family says how both are embedded."""

    family: ClassVar[str]
    architecture: ClassVar[str]
    """The authors' class."""

    def __init__(self, config: JointConfig, head: MatchHead | None) -> None:
        super().__init__()
        self.word = nn.Embedding(config.vocabulary_size, config.width)
        self.position = nn.Embedding(config.max_text_tokens, config.width)
        self.layers = nn.ModuleList(PostNormLayer(config) for _ in range(config.layer_count))
        self.head = head

    def forward(
        self, token_ids: Tensor, text_mask: Tensor, regions: Tensor, region_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns float32 [B, W] of unit length, and float32 [B, 1], 0 without a head.

        token_ids, text_mask: int64 [B, T]; regions: float16 [B, R, D]; region_mask: int64 [B, R].
        A mask is 1 where a token counts; regions that count come first.
        """
        hidden_BLW, mask_BL = self.hidden_states(token_ids, text_mask, regions, region_mask)
        embedding_BW = F.normalize(mean_of_counted(hidden_BLW, mask_BL), dim=-1)
        if self.head is None:
            return embedding_BW, torch.zeros_like(embedding_BW[:, :1])
        return embedding_BW, self.head(hidden_BLW[:, 0])

    def hidden_states(
        self, token_ids: Tensor, text_mask: Tensor, regions: Tensor, region_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the last layer's output [B, L, W] with its mask [B, L], in the family's order."""
        regions_BRD = regions.to(self.word.weight.dtype)
        hidden_BLW, mask_BL = self.embedded(token_ids, text_mask, regions_BRD, region_mask)
        attends_B11L = mask_BL.bool()[:, None, None, :]
        for layer in self.layers:
            hidden_BLW = layer(hidden_BLW, attends_B11L)
        return hidden_BLW, mask_BL

    def text_position_count(self, region_count: int) -> int:
        """Returns how many tokens of a text have positions next to that many regions."""
        return self.position.num_embeddings

    @abstractmethod
    def embedded(
        self, token_ids: Tensor, text_mask: Tensor, regions_BRD: Tensor, region_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the first layer's input [B, L, W] with its mask [B, L]."""
