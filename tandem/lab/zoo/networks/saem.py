"""Defines SAEM (Wu et al. 2019): self-attention over regions, and convolutions over words.

Shapes: B pairs, T text tokens, R regions, D width.
"""

from dataclasses import replace
from typing import Final

import torch
from torch import Tensor, nn

from tandem.lab.zoo.config import ZooConfig
from tandem.lab.zoo.network import EmbeddingNetwork, Lesson, Parts
from tandem.lab.zoo.networks.word_convolutions import WordConvolutions
from tandem.lab.zoo.region_inputs import RegionInputs, mean_of, unit
from tandem.lab.zoo.word_readers import word_reader
from tandem.modeling.joint_encoder import PostNormLayer

_EPOCH_COUNT: Final = 30
_LAST_ANGULAR_EPOCH: Final = 20
_WEIGHT_NORM_SHARE: Final = 0.01


class Saem(EmbeddingNetwork):
    """Embeds the mean of regions that have attended to each other, and maxima of windows of words.

    Its text side reads a frozen BERT: `zoo_text_reader=transformer` and `has_frozen_text=true`.
    """

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()
        width = config.width
        self.regions = RegionInputs(config.inputs)
        self.project = nn.Linear(self.regions.feature_width, width)
        self.attend = PostNormLayer(
            replace(
                config.inputs,
                width=width,
                head_count=16 if width % 16 == 0 else 8,
                feed_forward_width=8 * width,
                encoder="post_norm",
            )
        )
        self.words = word_reader(config, is_bidirectional=True, projects=False)
        self.windows = WordConvolutions(self.words.width, 2 * width)
        self.dropout = nn.Dropout(0.1)
        self.text_project = nn.Linear(6 * width, width)

    def read_images(self, tokens_BRI: Tensor, mask_BR: Tensor) -> Parts:
        """Returns the mean of the regions after one layer of BERT, without positions."""
        states_BRD = self.attend(
            self.project(self.regions(tokens_BRI)), mask_BR.bool()[:, None, None]
        )
        return (unit(mean_of(states_BRD, mask_BR)),)

    def read_texts(self, ids_BT: Tensor, mask_BT: Tensor) -> Parts:
        _, highest_BE = self.windows(self.words(ids_BT, mask_BT), mask_BT)
        return (unit(self.text_project(self.dropout(highest_BE))),)

    def further_loss(self, images: Parts, texts: Parts, lesson: Lesson) -> Tensor:
        """Returns the angular loss by its falling weight, and the norms of the image side."""
        weights = [
            each
            for part in (self.project, self.attend)
            for each in part.parameters()
            if each.ndim >= 2
        ]
        norms = torch.stack([each.norm() for each in weights]).sum()
        epoch = int(lesson.share_done * _EPOCH_COUNT)
        weight = 0.5 * 0.1 ** (epoch // 5) if epoch <= _LAST_ANGULAR_EPOCH else 0.0
        angular = angular_loss(images[0], texts[0], lesson.groups)
        return weight * angular + _WEIGHT_NORM_SHARE * norms


def angular_loss(images_BD: Tensor, texts_BD: Tensor, groups_B: Tensor) -> Tensor:
    """Returns the sum over both directions of log(1 + exp(max_n [4 (a + p) n - 4 a p])).

    a is a picture or a text, p its own text or picture, and n those of other groups; the bound on
    the angle is 45 degrees, whose squared tangent is 1.
    """
    same_BB = groups_B[:, None] == groups_B[None, :]
    own_B1 = (images_BD * texts_BD).sum(-1, keepdim=True)
    total = images_BD.new_zeros(())
    for negatives_BD in (texts_BD, images_BD):
        near_BB = 4 * (images_BD + texts_BD) @ negatives_BD.T - 4 * own_B1
        hardest_B = near_BB.masked_fill(same_BB, -torch.inf).amax(1)
        total = total + nn.functional.softplus(hardest_B).sum()
    return total
