"""Defines CAMERA (Qu et al. 2020): gated self-attention, and twelve views of a picture.

Shapes: B batch, T text tokens, R regions, L positions, V views, D width, H heads, W width of a
head, P pictures, C captions (X stands for P or 1).
"""

import math
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tandem.lab.zoo.config import ZooConfig
from tandem.lab.zoo.network import Lesson, Parts, ZooNetwork
from tandem.lab.zoo.region_inputs import BOX_WIDTH, UNREAD, RegionInputs, mean_of, unit
from tandem.lab.zoo.word_readers import word_reader

_VIEW_COUNT: Final = 12
_HEAD_WIDTH: Final = 32
_DIVERSITY_SHARE: Final = 0.01
# Kernel and dilation of each convolution, and its channels as a part of the width.
_WINDOWS: Final = (
    (1, 1, 8),
    (3, 1, 16),
    (3, 2, 16),
    (3, 3, 16),
    (5, 1, 16),
    (5, 2, 16),
    (5, 3, 16),
)


class Camera(ZooNetwork):
    """Scores a pair by the view of the picture that fits the text best.

    One vector of a picture, for an index, is the unit mean of its views, which the paper does not
    define; pairs are scored by all views.
    """

    embeds = True

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()
        width = config.width
        self.regions = RegionInputs(config.inputs)
        self.project = nn.Linear(self.regions.feature_width, width)
        self.place = nn.Linear(BOX_WIDTH, width)
        self.attend = GatedSelfAttention(width)
        self.views = ViewSummary(width)
        self.words = word_reader(config, is_bidirectional=True, projects=False)
        self.text_project = nn.Linear(self.words.width, width)
        self.text_attend = GatedSelfAttention(width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)
        )
        self.feed_forward_norm = nn.BatchNorm1d(width)

    def read_texts(self, ids_BT: Tensor, mask_BT: Tensor) -> Parts:
        """Returns the embeddings: the mean of words that have attended to each other."""
        states_BTD = self.text_project(self.words(ids_BT, mask_BT))
        states_BTD = self.text_attend(states_BTD, states_BTD, mask_BT)
        fed_BTD = self.feed_forward(states_BTD)
        normed_BTD = self.feed_forward_norm(fed_BTD.flatten(0, 1)).view_as(fed_BTD)
        return (unit(mean_of(states_BTD + normed_BTD, mask_BT)),)

    def read_images(self, tokens_BRI: Tensor, mask_BR: Tensor) -> Parts:
        """Returns the views' unit vectors [B, V, D], and the matrix that makes them [B, R, V].

        The released code normalises regions over the axis of regions, a slip of its helper.
        """
        states_BRD = unit(self.project(self.regions(tokens_BRI)))
        gate_BRD = torch.sigmoid(self.place(_places(self.regions.boxes(tokens_BRI))))
        states_BRD = unit(self.attend(states_BRD, states_BRD * gate_BRD, mask_BR))
        summary_BRV = self.views(states_BRD, mask_BR)
        shares_BRV = summary_BRV.masked_fill(mask_BR[..., None] == 0, UNREAD).softmax(1)
        counted_BRV = summary_BRV * mask_BR[..., None].to(summary_BRV.dtype)
        return unit(shares_BRV.transpose(1, 2) @ states_BRD), counted_BRV

    def embedding(self, parts: Parts) -> Tensor:
        """Returns a text's vector, or the unit mean of a picture's views."""
        return unit(parts[0].mean(1)) if len(parts) == 2 else parts[0]

    def scores(self, images: Parts, texts: Parts) -> Tensor:
        """Returns the largest cosine over the views, [P, C]."""
        return (texts[0] @ images[0].transpose(1, 2)).amax(-1)

    def further_loss(self, images: Parts, texts: Parts, lesson: Lesson) -> Tensor:
        """Returns how much the views are alike: 0.01 sum |LᵀL - I|², columns of unit length."""
        columns_BRV = F.normalize(images[1], dim=1)
        alike_BVV = columns_BRV.transpose(1, 2) @ columns_BRV
        own_VV = torch.eye(alike_BVV.shape[-1], device=alike_BVV.device)
        return _DIVERSITY_SHARE * (alike_BVV - own_VV).square().sum()


class GatedSelfAttention(nn.Module):
    """Attends with queries and keys that gate each other, and adds the result to its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.head_count = max(1, width // _HEAD_WIDTH)
        inner = width // self.head_count
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.gate_query, self.gate_key = nn.Linear(inner, inner), nn.Linear(inner, inner)
        self.gate = nn.Linear(inner, 2 * inner)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, added_BLD: Tensor, states_BLD: Tensor, mask_BL: Tensor) -> Tensor:
        """Returns `added` plus what `states` read of each other, [B, L, D]."""
        query_BHLW, key_BHLW, value_BHLW = (
            each(states_BLD).unflatten(-1, (self.head_count, -1)).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        )
        gates = torch.sigmoid(self.gate(self.gate_query(query_BHLW) * self.gate_key(key_BHLW)))
        query_gate_BHLW, key_gate_BHLW = gates.chunk(2, dim=-1)
        scores_BHLL = (query_BHLW * query_gate_BHLW) @ (key_BHLW * key_gate_BHLW).transpose(-1, -2)
        scores_BHLL = scores_BHLL / math.sqrt(query_BHLW.shape[-1])
        scores_BHLL = scores_BHLL.masked_fill(mask_BL[:, None, None] == 0, UNREAD)
        read_BLD = (scores_BHLL.softmax(-1) @ value_BHLW).transpose(1, 2).flatten(2)
        normed_BLD: Tensor = self.norm(read_BLD.flatten(0, 1)).view_as(read_BLD)
        return added_BLD + normed_BLD


class ViewSummary(nn.Module):
    """Scores each region for each view, by dilated convolutions over the regions in order."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.windows = nn.ModuleList(
            nn.Conv1d(width, width // part, size, dilation=dilation, padding=dilation * (size // 2))
            for size, dilation, part in _WINDOWS
        )
        self.view = nn.Linear(sum(width // part for _, _, part in _WINDOWS), _VIEW_COUNT)

    def forward(self, states_BRD: Tensor, mask_BR: Tensor) -> Tensor:
        states_BDR = (states_BRD * mask_BR[..., None].to(states_BRD.dtype)).transpose(1, 2)
        read = [torch.relu(window(states_BDR)) for window in self.windows]
        scores_BRV: Tensor = self.view(torch.cat(read, dim=1).transpose(1, 2))
        return scores_BRV


def _places(boxes_BR6: Tensor) -> Tensor:
    """Returns x, y, width, height, width to height and area of each box, [B, R, 6]."""
    x1, y1, _, _, wide, high = boxes_BR6.unbind(-1)
    return torch.stack([x1, y1, wide, high, wide / high.clamp_min(1e-6), wide * high], dim=-1)
