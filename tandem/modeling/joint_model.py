"""Defines the joint model, which a checkpoint holds: an image backbone and a joint encoder.

Shapes: B batch, T text tokens, R image tokens, L = T + R, D width (image tokens may have another
width before they are projected), M masked words, V words of the vocabulary.
"""

import torch
from torch import Tensor, nn

from tandem.modeling.config import JointConfig
from tandem.modeling.image_sources.image_tokens import image_backbone_of
from tandem.modeling.joint_encoder import JointEncoder
from tandem.modeling.separate_encoders import SeparateEncoders, encoders_in
from tandem.modeling.towers.two_towers import TwoTowers


class JointModel(nn.Module):
    """Combines an image backbone with a joint encoder, two separate encoders or two towers."""

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        self.config = config
        self.image_backbone = image_backbone_of(config)
        self.joint_encoder = _encoder_of(config)

    def embed_texts(self, input_ids_BT: Tensor, text_mask_BT: Tensor) -> Tensor:
        """Returns the bi-encoder's embeddings, float32 [B, D]."""
        nothing_B1D, absent_B1 = self._no_image(input_ids_BT)
        return self.joint_encoder(input_ids_BT, text_mask_BT, nothing_B1D, absent_B1)[0]

    def embed_images(
        self, tokens_BRD: Tensor, cls_id: int, image_mask_BR: Tensor | None = None
    ) -> Tensor:
        """Returns the bi-encoder's embeddings, float32 [B, D]; without a mask, all tokens count.

        The text side is [CLS] alone, without [SEP], as in the code of Geigle et al. 2022.
        """
        ids_B1 = torch.full((tokens_BRD.shape[0], 1), cls_id, device=tokens_BRD.device)
        mask_BR = _all_count(tokens_BRD) if image_mask_BR is None else image_mask_BR
        return self.joint_encoder(ids_B1, torch.ones_like(ids_B1), tokens_BRD, mask_BR)[0]

    def match_logits(
        self,
        input_ids_BT: Tensor,
        text_mask_BT: Tensor,
        tokens_BRD: Tensor,
        image_mask_BR: Tensor | None = None,
    ) -> Tensor:
        """Returns the cross-encoder's logits, float32 [B]; without a mask, all tokens count."""
        mask_BR = _all_count(tokens_BRD) if image_mask_BR is None else image_mask_BR
        return self.joint_encoder(input_ids_BT, text_mask_BT, tokens_BRD, mask_BR)[1][:, 0]

    def word_logits(
        self,
        input_ids_BT: Tensor,
        text_mask_BT: Tensor,
        tokens_BRD: Tensor,
        at_BT: Tensor,
        image_mask_BR: Tensor | None = None,
    ) -> Tensor:
        """Returns the logits of all words at the positions where `at_BT` is true, [M, V].

        Text and image are read together, by the CE's encoder if there are two; without a mask, all
        image tokens count. A word's logit is the product of its embedding and the hidden state.
        Only training needs it.
        """
        encoder = encoders_in(self.joint_encoder)[-1]
        assert isinstance(encoder, JointEncoder), "two of them at most"
        mask_BR = _all_count(tokens_BRD) if image_mask_BR is None else image_mask_BR
        hidden_BLD = encoder.hidden_states(input_ids_BT, text_mask_BT, tokens_BRD, mask_BR)
        return hidden_BLD[:, : input_ids_BT.shape[1]][at_BT] @ encoder.word.weight.T

    def _no_image(self, input_ids_BT: Tensor) -> tuple[Tensor, Tensor]:
        batch, device = len(input_ids_BT), input_ids_BT.device
        nothing_B1D = torch.zeros(batch, 1, self.config.token_width, device=device)
        return nothing_B1D, torch.zeros(batch, 1, dtype=torch.int64, device=device)


def _encoder_of(config: JointConfig) -> JointEncoder | SeparateEncoders | TwoTowers:
    if config.has_two_towers:
        return TwoTowers(config)
    if config.has_two_encoders:
        return SeparateEncoders(JointEncoder(config), JointEncoder(config))
    return JointEncoder(config)


def _all_count(tokens_BRD: Tensor) -> Tensor:
    return torch.ones(tokens_BRD.shape[:2], dtype=torch.int64, device=tokens_BRD.device)
