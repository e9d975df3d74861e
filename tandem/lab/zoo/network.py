"""Defines what a network of the zoo is: it embeds, or it scores pairs, or both.

Training and evaluation see one interface: read texts, read images, and score all of them against
each other. What reading gives (Parts) is the network's own business.

Shapes: B batch, T text tokens, R regions, I width of an image token, P pictures, C captions (X
stands for P, or for 1 where all pictures have the same captions), D embedding width.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Parts = tuple[Tensor, ...]
"""A network's reading of texts or images; the first axis of each tensor is the batch."""


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """Holds what a step's further losses may depend on; texts and images match row by row."""

    token_ids: Tensor
    """int64 [B, T]."""
    text_mask: Tensor
    """int64 [B, T]."""
    image_mask: Tensor
    """int64 [B, R]."""
    groups: Tensor
    """int64 [B]; rows of one group are never negatives of each other."""
    share_done: float
    """Share of the training that is over, 0 to 1."""


class ZooNetwork(nn.Module, ABC):
    """Reads texts and image tokens, and scores them against each other."""

    embeds: ClassVar[bool] = False
    """Whether a single text or picture has an embedding."""
    scores_pairs: ClassVar[bool] = True
    """Whether a pair's score is more than the product of two embeddings."""

    @abstractmethod
    def read_texts(self, ids_BT: Tensor, mask_BT: Tensor) -> Parts:
        """Reads texts."""

    @abstractmethod
    def read_images(self, tokens_BRI: Tensor, mask_BR: Tensor) -> Parts:
        """Reads pictures."""

    @abstractmethod
    def scores(self, images: Parts, texts: Parts) -> Tensor:
        """Returns [P, C]; images are [P, ...] and texts [X, C, ...]."""

    def every(self, images: Parts, texts: Parts) -> Tensor:
        """Returns the scores of all pictures with all captions, float32 [P, C]."""
        return self.scores(images, tuple(each[None] for each in texts))

    def row_by_row(self, images: Parts, texts: Parts) -> Tensor:
        """Returns the scores of picture n with caption n, float32 [P]."""
        return self.scores(images, tuple(each[:, None] for each in texts))[:, 0]

    def ranking_loss(
        self, scores_BB: Tensor, groups_B: Tensor, margin: float, *, takes_hardest: bool
    ) -> Tensor:
        """Returns the loss of all pictures' scores with all captions, own pairs on the diagonal."""
        return hinge_loss(scores_BB, groups_B, margin, takes_hardest=takes_hardest)

    def logits(self, scores: Tensor) -> Tensor:
        """Returns match logits, which rank as the scores do."""
        return scores

    def embedding(self, parts: Parts) -> Tensor:
        """Returns unit vectors [B, D] of texts or pictures that were read.

        Raises ValueError for a network that only scores pairs.
        """
        raise ValueError(
            f"{type(self).__name__} scores pairs and embeds nothing; take it as the cross-encoder "
            "of a model that embeds"
        )

    def further_loss(self, images: Parts, texts: Parts, lesson: Lesson) -> Tensor | None:
        """Returns what the network's paper adds to the hinges; None without any."""
        return None


class EmbeddingNetwork(ZooNetwork):
    """Embeds texts and pictures apart; their score is the cosine.

    The first part of what it reads is the embedding.
    """

    embeds = True
    scores_pairs = False

    def embedding(self, parts: Parts) -> Tensor:
        return parts[0]

    def scores(self, images: Parts, texts: Parts) -> Tensor:
        return (texts[0] @ images[0][..., None])[..., 0]

    def every(self, images: Parts, texts: Parts) -> Tensor:
        """Returns the cosines of all pictures with all captions, by one product."""
        return images[0] @ texts[0].T


def hinge_loss(
    scores_BB: Tensor, groups_B: Tensor, margin: float, *, takes_hardest: bool
) -> Tensor:
    """Returns the sum over the batch of hinges in both directions, of own pairs on the diagonal.

        hardest: sum_j [ max_k (m + s_jk - s_jj)+ + max_k (m + s_kj - s_jj)+ ]
        all:     sum_j [ sum_k (m + s_jk - s_jj)+ + sum_k (m + s_kj - s_jj)+ ]

    k runs over the rows of other groups; the published codes leave only the pair itself out, which
    is what groups that are all different give (Faghri et al. 2018, equations 5 and 6).

    >>> scores = torch.tensor([[0.5, 0.6], [0.1, 0.9]])
    >>> round(hinge_loss(scores, torch.arange(2), 0.2, takes_hardest=True).item(), 4)
    0.3
    """
    own_B1 = scores_BB.diagonal()[:, None]
    same_BB = groups_B[:, None] == groups_B[None, :]
    wrong_captions_BB = F.relu(margin + scores_BB - own_B1).masked_fill(same_BB, 0.0)
    wrong_images_BB = F.relu(margin + scores_BB - own_B1.T).masked_fill(same_BB, 0.0)
    if takes_hardest:
        return wrong_captions_BB.amax(1).sum() + wrong_images_BB.amax(0).sum()
    total: Tensor = torch.stack([wrong_captions_BB, wrong_images_BB]).sum()
    return total
