"""Defines CAMP (Wang et al. 2019): messages across the modalities, and gates for them.

Shapes: P pictures, C captions (X stands for P or 1), T words, R regions, L fragments of one side, K
of the other, M attention maps, D width, B pairs.
"""

import math
from typing import Final

import torch
from torch import Tensor, nn

from tandem.lab.zoo.config import ZooConfig
from tandem.lab.zoo.network import Parts, ZooNetwork
from tandem.lab.zoo.region_inputs import UNREAD, RegionInputs, mean_of, projection, unit
from tandem.lab.zoo.word_readers import word_reader

_MAP_COUNT: Final = 4
_DROPOUT: Final = 0.01
_SURE: Final = 1e-6


class CampReader(ZooNetwork):
    """Reads regions and words for both stages, and lets each side's fragments ask the other's."""

    def __init__(self, config: ZooConfig) -> None:
        super().__init__()
        self.regions = RegionInputs(config.inputs)
        self.project = projection(self.regions.feature_width, config.width)
        self.words = word_reader(config, is_bidirectional=True)
        self.image_key = _key(config.width)
        self.text_key = _key(config.width)

    def read_texts(self, ids_BT: Tensor, mask_BT: Tensor) -> Parts:
        return self.words(ids_BT, mask_BT), mask_BT

    def read_images(self, tokens_BRI: Tensor, mask_BR: Tensor) -> Parts:
        return self.project(self.regions(tokens_BRI)), mask_BR

    def messages(self, images: Parts, texts: Parts) -> tuple[Tensor, Tensor]:
        """Returns what each region reads of the words, and each word of the regions."""
        (regions, is_region), (words, is_word) = images, texts
        region_keys, word_keys = self.image_key(regions), self.text_key(words)
        to_regions = read_by(region_keys, word_keys, words, is_word)
        return to_regions, read_by(word_keys, region_keys, regions, is_region)


class Camp(CampReader):
    """Scores a pair by the cosine of both sides' messages: the first stage."""

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        self.region_query, self.region_key = _key(config.width), _key(config.width)
        self.word_query, self.word_key = _key(config.width), _key(config.width)

    def scores(self, images: Parts, texts: Parts) -> Tensor:
        pictures = tuple(each[:, None] for each in images)
        to_regions_PCRD, to_words_PCTD = self.messages(pictures, texts)
        image_PCD = self._whole(to_regions_PCRD, pictures[1], self.region_query, self.region_key)
        text_PCD = self._whole(to_words_PCTD, texts[1], self.word_query, self.word_key)
        return (image_PCD * text_PCD).sum(-1)

    @staticmethod
    def _whole(messages: Tensor, mask: Tensor, query: nn.Module, key: nn.Module) -> Tensor:
        """Returns the unit mean of the messages after they have read each other."""
        return unit(mean_of(read_by(query(messages), key(messages), messages, mask), mask))


class GatedCamp(CampReader):
    """Scores a pair by an MLP over both sides, fused with gated messages: the second stage.

    It learns by cross-entropy of own pairs and hardest negatives. Its authors start it from the
    first stage; here it starts from random weights.
    """

    def __init__(self, config: ZooConfig) -> None:
        super().__init__(config)
        width = config.width
        self.fuse_regions, self.fuse_words = _fusion(width), _fusion(width)
        self.region_maps, self.word_maps = _maps(width), _maps(width)
        self.score = _fusion(width).append(nn.Linear(width, 1))

    def scores(self, images: Parts, texts: Parts) -> Tensor:
        """Returns match probabilities [P, C]."""
        pictures = tuple(each[:, None] for each in images)
        to_regions_PCRD, to_words_PCTD = self.messages(pictures, texts)
        image_PCD = self._fused(pictures, to_regions_PCRD, self.fuse_regions, self.region_maps)
        text_PCD = self._fused(texts, to_words_PCTD, self.fuse_words, self.word_maps)
        return torch.sigmoid(self.score(torch.cat([image_PCD, text_PCD], dim=-1)))[..., 0]

    def logits(self, scores: Tensor) -> Tensor:
        return torch.logit(scores, eps=_SURE)

    def ranking_loss(
        self, scores_BB: Tensor, groups_B: Tensor, margin: float, *, takes_hardest: bool
    ) -> Tensor:
        """Returns -[2 sum log own + sum log(1 - hardest caption) + sum log(1 - hardest picture)].

        `takes_hardest` false takes the mean of all negatives' terms instead of the hardest's.
        """
        sure_BB = scores_BB.clamp(_SURE, 1 - _SURE)
        same_BB = groups_B[:, None] == groups_B[None, :]
        wrong_BB = (1 - sure_BB).log().masked_fill(same_BB, 0.0)
        own: Tensor = 2 * sure_BB.diagonal().log().sum()
        if takes_hardest:
            return -(own + wrong_BB.amin(1).sum() + wrong_BB.amin(0).sum())
        count_B = (~same_BB).sum(1).clamp_min(1)
        return -(own + (wrong_BB.sum(1) / count_B).sum() + (wrong_BB.sum(0) / count_B).sum())

    @staticmethod
    def _fused(own: Parts, messages: Tensor, fuse: nn.Module, maps: nn.Module) -> Tensor:
        """Returns [P, C, D]: the mean over attention maps of fragments and gated messages."""
        fragments, mask = own
        message = unit(messages)
        gate = torch.sigmoid((fragments * message).sum(-1, keepdim=True))
        both = torch.cat([fragments.expand_as(message), message], dim=-1)
        fused_PCLD = fuse(both * gate) + fragments
        logits_PCLM = maps(fused_PCLD).masked_fill(mask[..., None] == 0, UNREAD)
        return unit((logits_PCLM.softmax(-2).transpose(-1, -2) @ fused_PCLD).mean(-2))


def read_by(query: Tensor, key: Tensor, value: Tensor, is_read: Tensor) -> Tensor:
    """Returns scaled dot-product attention of one head; `is_read` is 1 where a value counts."""
    logits = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    return logits.masked_fill(is_read[..., None, :] == 0, UNREAD).softmax(-1) @ value


def _key(width: int) -> nn.Linear:
    key = nn.Linear(width, width, bias=False)
    nn.init.xavier_uniform_(key.weight)
    return key


def _fusion(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Dropout(_DROPOUT))


def _maps(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, _MAP_COUNT))
