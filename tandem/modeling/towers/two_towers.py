"""Holds two towers and a matcher with the interface of the joint encoder.

Text and picture are embedded apart, by the text tower and the grid head; a pair is scored by the
matcher over the words and image tokens of both. Serving, storage and evaluation do not depend on
the kind of model, as with SeparateEncoders.

Shapes: B batch, T text tokens, R image tokens, E embedding width.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tandem.modeling.config import JointConfig
from tandem.modeling.image_sources.efficientnet import LateBlocks
from tandem.modeling.joint_encoder import mean_of_counted
from tandem.modeling.towers.grid_head import GridHead, GridTrunk
from tandem.modeling.towers.text_trunk import TextTop, TextTrunk
from tandem.modeling.towers.word_grid_matcher import Parts, WordGridMatcher

_FIRST_TEMPERATURE = 0.07


class TextSide(nn.Module):
    """Embeds a text."""

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        self.tower = TextTrunk(config)
        self.project = nn.Linear(config.width, config.embedding_dim)

    def forward(self, input_ids: Tensor, text_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Returns embeddings of unit length [B, E] and word states [B, T, D], float32."""
        states_BTD = self.tower(input_ids, text_mask)
        return self.embedding(states_BTD, text_mask), states_BTD

    def embedding(self, states_BTD: Tensor, text_mask: Tensor) -> Tensor:
        mean_BD = mean_of_counted(states_BTD, text_mask)
        return F.normalize(self.project(mean_BD).float(), dim=-1)


class MatcherTowers(nn.Module):
    """Holds trunks of the matcher's own, which share nothing with the embeddings."""

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        self.text = TextTrunk(config)
        self.grid = GridTrunk(config)


class MatcherTops(nn.Module):
    """Holds upper parts of the matcher's own, over the lower ones that embed too.

    Those are all layers of the text trunk but the last ones, and the late blocks of the grid.
    """

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        self.layer_count = config.matcher_layer_count
        self.text = TextTop(config)
        self.grid = GridTrunk(config, shares_late=True)


class PairSide(nn.Module):
    """Scores a text with a picture: the matcher's logit, plus the weighted cosine of the towers.

    Without a matcher, it is only the weighted cosine.
    """

    matcher_weight: Tensor
    cosine_weight: Tensor

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        self.text, self.image = TextSide(config), GridHead(config)
        shares = config.matcher_layer_count > 0
        has_towers = config.matcher_has_towers
        self.towers = MatcherTowers(config) if has_towers and not shares else None
        self.tops = MatcherTops(config) if has_towers and shares else None
        self.matcher = matcher = WordGridMatcher(config) if config.matcher_width else None
        self.register_buffer("matcher_weight", torch.tensor(1.0 if matcher else 0.0))
        self.register_buffer("cosine_weight", torch.tensor(0.0 if matcher else 10.0))

    def forward(
        self, input_ids: Tensor, text_mask: Tensor, image_tokens: Tensor, image_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the text's embedding and the match logit, float32 [B, E] and [B, 1]."""
        text = self.read_text(input_ids, text_mask)
        picture = self.read_image(image_tokens, image_mask)
        return text[0], self.scored(text, picture)

    def read_text(self, input_ids: Tensor, text_mask: Tensor) -> tuple[Tensor, Parts | None]:
        """Returns what a score needs of texts: embeddings [B, E], and the matcher's words."""
        # What both scores share is computed once.
        own_layer_count = self.tops.layer_count if self.tops is not None else 0
        hidden_BTD = self.text.tower.below(input_ids, text_mask, own_layer_count)
        words_BTD = self.text.tower.above(hidden_BTD, text_mask, own_layer_count)
        text_BE = self.text.embedding(words_BTD, text_mask)
        if self.matcher is None:
            return text_BE, None
        if self.tops is not None:
            words_BTD = self.tops.text(hidden_BTD, text_mask)
        if self.towers is not None:
            words_BTD = self.towers.text(input_ids, text_mask)
        return text_BE, self.matcher.words(words_BTD, text_mask)

    def read_image(self, image_tokens: Tensor, image_mask: Tensor) -> tuple[Tensor, Parts | None]:
        """Returns what a score needs of pictures: embeddings [B, E], and the matcher's grid."""
        tokens_BRW, mask_BR = self.image.trunk.late_tokens(image_tokens, image_mask)
        image_BE, grid_BRD, _ = self.image.of_late_tokens(tokens_BRW, mask_BR)
        if self.matcher is None:
            return image_BE, None
        if self.tops is not None:
            grid_BRD = self.tops.grid.adapted(tokens_BRW, mask_BR)
        if self.towers is not None:
            grid_BRD, mask_BR = self.towers.grid(image_tokens, image_mask)
        return image_BE, self.matcher.grid(grid_BRD, mask_BR)

    def scored(
        self, text: tuple[Tensor, Parts | None], picture: tuple[Tensor, Parts | None]
    ) -> Tensor:
        """Returns the match logits of text n with picture n, float32 [B, 1]."""
        (text_BE, words), (image_BE, grid) = text, picture
        logits_B1 = self.cosine_weight * (text_BE * image_BE).sum(-1, keepdim=True)
        if self.matcher is not None and words is not None and grid is not None:
            logits_B1 = logits_B1 + self.matcher_weight * self.matcher(words, grid)[:, None]
        return logits_B1


class TowerRoute(nn.Module):
    """Routes a single text or picture to its tower, and a pair to the matcher."""

    def __init__(self, text: nn.Module, image: nn.Module, pair: nn.Module) -> None:
        super().__init__()
        self.text, self.image, self.pair = text, image, pair

    def forward(
        self, input_ids: Tensor, text_mask: Tensor, image_tokens: Tensor, image_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns embedding and match logit of each row; a missing side has one position."""
        # One expression per branch, because TorchScript compiles this (exported.py).
        if input_ids.shape[1] > 1 and image_tokens.shape[1] > 1:
            return self.pair(input_ids, text_mask, image_tokens, image_mask)
        if image_tokens.shape[1] > 1:
            image_BE = self.image(image_tokens, image_mask)[0]
            return image_BE, torch.zeros_like(image_BE[:, :1])
        text_BE = self.text(input_ids, text_mask)[0]
        return text_BE, torch.zeros_like(text_BE[:, :1])


class TwoTowers(nn.Module):
    """Embeds a single text or picture by its tower, and scores a pair by the matcher."""

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        self.pair = PairSide(config)
        self.log_scale = nn.Parameter(torch.tensor(math.log(1 / _FIRST_TEMPERATURE)))
        """Logarithm of the inverse temperature that in-batch softmax learns."""

    @property
    def text(self) -> TextSide:
        return self.pair.text

    @property
    def image(self) -> GridHead:
        return self.pair.image

    @property
    def matcher(self) -> WordGridMatcher | None:
        """The matcher of pairs; None for a bi-encoder without one."""
        return self.pair.matcher

    def text_trunks(self) -> list[TextTrunk]:
        """Returns every text trunk: what a published encoder starts."""
        own = self.pair.towers
        return [self.text.tower, *([own.text] if own is not None else [])]

    def text_tops(self) -> list[TextTop]:
        """Returns the matcher's copies of a text trunk's last layers, if it has some."""
        return [self.pair.tops.text] if self.pair.tops is not None else []

    def late_blocks(self) -> list[LateBlocks]:
        """Returns the late blocks of every grid trunk that has some."""
        own = self.pair.towers
        trunks = [self.image.trunk, *([own.grid] if own is not None else [])]
        return [trunk.late for trunk in trunks if trunk.late is not None]

    def matcher_parts(self) -> list[nn.Module]:
        """Returns what the matcher's stage trains: the matcher and parts of its own."""
        parts = (self.matcher, self.pair.towers, self.pair.tops)
        return [part for part in parts if part is not None]

    def matcher_states(
        self, input_ids: Tensor, text_mask: Tensor, image_tokens: Tensor, image_mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns what the matcher reads: word states, states of image tokens, and their mask."""
        own, tops = self.pair.towers, self.pair.tops
        if own is not None:
            return (own.text(input_ids, text_mask), *own.grid(image_tokens, image_mask))
        if tops is not None:
            hidden_BTD = self.text.tower.below(input_ids, text_mask, tops.layer_count)
            tokens_BRW, mask_BR = self.image.trunk.late_tokens(image_tokens, image_mask)
            grid_BRD = tops.grid.adapted(tokens_BRW, mask_BR)
            return tops.text(hidden_BTD, text_mask), grid_BRD, mask_BR
        _, grid_BRD, mask_BR = self.image(image_tokens, image_mask)
        return self.text(input_ids, text_mask)[1], grid_BRD, mask_BR

    def start_tops(self) -> None:
        """Copies what the text tower has learned into the matcher's copies of its last layers."""
        for top in self.text_tops():
            top.start(self.text.tower)

    @property
    def temperature(self) -> Tensor:
        """The divisor of cosines in the in-batch softmax, at least 0.01."""
        return (-self.log_scale.clamp(max=math.log(100.0))).exp()

    def start_temperature(self, temperature: float) -> None:
        """Sets the temperature that training begins with."""
        with torch.no_grad():
            self.log_scale.fill_(-math.log(temperature))

    def route(self) -> TowerRoute:
        """Returns the three functions behind one signature, as an export traces them."""
        return TowerRoute(self.text, self.image, self.pair)

    def forward(
        self, input_ids: Tensor, text_mask: Tensor, image_tokens: Tensor, image_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns embedding and match logit of each row, like JointEncoder.forward.

        The embedding of a pair is its text's, and the logit of one side is 0; neither has a
        meaning.
        """
        encoded: tuple[Tensor, Tensor] = self.route()(
            input_ids, text_mask, image_tokens, image_mask
        )
        return encoded
