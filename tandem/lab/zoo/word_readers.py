"""Reads words: by a GRU over a table of words, or by BERT's layers.

A mask is 1 where a position counts, and the positions that count come first.

Shapes: B batch, T text tokens, L positions, W width of the table, D width of states.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from tandem.lab.zoo.config import ZooConfig
from tandem.lab.zoo.region_inputs import mean_of
from tandem.modeling.towers.text_trunk import TextTrunk

_FIRST_WORDS = 0.1


class WordReader(nn.Module, ABC):
    """Gives a state of each word, and one of the whole text."""

    width: int
    """D: the width of states."""

    @abstractmethod
    def forward(self, ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Returns float32 [B, T, D]; the state of a position that does not count has no meaning."""

    @abstractmethod
    def whole(self, states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Returns float32 [B, D]."""


class WordGru(WordReader):
    """Reads a table's words by a GRU; of two directions it takes the mean."""

    def __init__(self, config: ZooConfig, *, is_bidirectional: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.width = config.width
        self.word = nn.Embedding(config.inputs.vocabulary_size, config.word_width)
        nn.init.uniform_(self.word.weight, -_FIRST_WORDS, _FIRST_WORDS)
        self.onward = nn.GRU(config.word_width, config.width, batch_first=True)
        self.backward_gru = (
            nn.GRU(config.word_width, config.width, batch_first=True) if is_bidirectional else None
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        words_BTW = self.dropout(self.word(ids_BT))
        states_BTD: Tensor = self.onward(words_BTW)[0]
        if self.backward_gru is None:
            return states_BTD
        # The other direction begins at each text's own last word, not at the padding after it.
        back_BT = reversed_places(mask_BT)
        turned_BTD = self.backward_gru(_at(words_BTW, back_BT))[0]
        return (states_BTD + _at(turned_BTD, back_BT)) / 2

    def whole(self, states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        return last_state(states_BTD, mask_BT)


class TransformerWords(WordReader):
    """Reads words by BERT's layers, projected to the model's width or as they are."""

    def __init__(self, config: ZooConfig, *, projects: bool = True) -> None:
        super().__init__()
        self.width = config.width if projects else config.inputs.width
        self.trunk = TextTrunk(config.inputs)
        self.project = nn.Linear(config.inputs.width, config.width) if projects else nn.Identity()

    def forward(self, ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        states_BTD: Tensor = self.project(self.trunk(ids_BT, mask_BT))
        return states_BTD

    def whole(self, states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Returns the mean of the words' states."""
        return mean_of(states_BTD, mask_BT)


def word_reader(
    config: ZooConfig,
    *,
    is_bidirectional: bool = False,
    dropout: float = 0.0,
    projects: bool = True,
) -> WordReader:
    if config.text_reader == "transformer":
        return TransformerWords(config, projects=projects)
    return WordGru(config, is_bidirectional=is_bidirectional, dropout=dropout)


def last_state(states_BLD: Tensor, mask_BL: Tensor) -> Tensor:
    """Returns [B, D]: the state of the last position that counts."""
    last_B1 = (mask_BL.sum(1, keepdim=True) - 1).clamp_min(0)
    return _at(states_BLD, last_B1)[:, 0]


def reversed_places(mask_BL: Tensor) -> Tensor:
    """Returns int64 [B, L]: places that reverse what counts, and leave the padding where it is."""
    at_BL = torch.ones_like(mask_BL).cumsum(1) - 1
    count_B1 = mask_BL.sum(1, keepdim=True)
    return torch.where(at_BL < count_B1, count_B1 - 1 - at_BL, at_BL)


def _at(states_BLD: Tensor, places_BL: Tensor) -> Tensor:
    return states_BLD.gather(1, places_BL[..., None].expand(-1, -1, states_BLD.shape[2]))
