"""The joint model: one set of weights is bi-encoder and cross-encoder (Geigle et al. 2022, 3.3).

A single-stream transformer reads a text, an image, or both. One side alone gives the bi-encoder's
embedding, both sides give the cross-encoder's match logit; only the masks differ.

Shapes: B batch, T text tokens, R image tokens, L = T + R, D width, which image tokens may have
another of until they are projected.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tandem.modeling.attention import multi_head_attention
from tandem.modeling.config import JointConfig
from tandem.modeling.image_tokens import image_backbone_of
from tandem.modeling.pooling import first_and_mean, mean_of_counted
from tandem.modeling.pretrained_encoder import PretrainedEncoder
from tandem.modeling.separate_encoders import SeparateEncoders, encoders_in


class JointEncoder(nn.Module):
    """Reads text tokens, image tokens, or both."""

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        width = config.width
        self.word = nn.Embedding(config.vocabulary_size, width)
        self.text_position = nn.Parameter(torch.randn(config.max_text_tokens, width) * 0.02)
        # As large as what they are added to: at the usual 0.02 a token's place drowned in its
        # content, and after 1,000 rounds left and right were still told apart by chance.
        side = config.grid_side
        self.has_places = side > 0  # a region says itself where it is
        self.image_row = nn.Parameter(torch.randn(side, 1, width) * 0.5)
        self.image_column = nn.Parameter(torch.randn(1, side, width) * 0.5)
        self.image_project = nn.Linear(config.token_width, width)
        self.embedding_norm = nn.LayerNorm(width, config.norm_epsilon)
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config.layer_count))
        self.final_norm = nn.LayerNorm(width, config.norm_epsilon)
        self.pooler = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(width, 2)  # no match, match
        nn.init.normal_(self.word.weight, std=0.02)

    def forward(
        self, input_ids: Tensor, text_mask: Tensor, image_tokens: Tensor, image_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the embedding and the match logit of each row.

        input_ids, text_mask: int64 [B, T]; image_tokens: float [B, R, D]; image_mask: int64
        [B, R], 1 where a token counts. Returns float32 [B, D] of unit length, the mean over all
        positions that count, and float32 [B, 1], z1 - z0 of the two-class head: the log odds of a
        match, which ranks as its probability does but does not saturate.
        """
        hidden_BLD = self.hidden_states(input_ids, text_mask, image_tokens, image_mask).float()
        mask_BL = torch.cat([text_mask, image_mask], dim=1)
        mean_BD = mean_of_counted(hidden_BLD, mask_BL)
        read_BW = first_and_mean(hidden_BLD, mean_BD, mask_BL)
        pooled = self.dropout(torch.tanh(self.pooler(read_BW)))
        logits_B2 = self.classifier(pooled).float()
        return F.normalize(mean_BD, dim=-1), logits_B2[:, 1:] - logits_B2[:, :1]

    def hidden_states(
        self, input_ids: Tensor, text_mask: Tensor, image_tokens: Tensor, image_mask: Tensor
    ) -> Tensor:
        """Returns what embedding and logit are read from, [B, L, D]; the text's come first."""
        text_BTD = self._embedded_text(input_ids)
        image_BRD = self._embedded_image(image_tokens).to(text_BTD.dtype)
        hidden_BLD = torch.cat([text_BTD, image_BRD], dim=1)
        attends_B11L = torch.cat([text_mask, image_mask], dim=1).bool()[:, None, None, :]
        for layer in self.layers:
            hidden_BLD = layer(hidden_BLD, attends_B11L)
        return self.final_norm(hidden_BLD)

    def _embedded_text(self, input_ids: Tensor) -> Tensor:
        text = self.word(input_ids) + self.text_position[: input_ids.shape[1]]
        return self.embedding_norm(text)

    def _embedded_image(self, image_tokens: Tensor) -> Tensor:
        image = self.image_project(image_tokens.to(self.image_row.dtype))
        if self.has_places:
            places_RD = (self.image_row + self.image_column).flatten(0, 1)
            image = image + places_RD[: image_tokens.shape[1]]
        return self.embedding_norm(image)


class JointModel(nn.Module):
    """Backbone and encoder together, or two encoders: what a checkpoint holds."""

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        self.config = config
        self.image_backbone = image_backbone_of(config)
        self.joint_encoder: JointEncoder | PretrainedEncoder | SeparateEncoders = (
            SeparateEncoders(_encoder(config), _encoder(config))
            if config.has_two_encoders
            else _encoder(config)
        )

    def embed_texts(self, input_ids_BT: Tensor, text_mask_BT: Tensor) -> Tensor:
        """Returns the bi-encoder's embeddings, float32 [B, D]."""
        nothing_B1D, absent_B1 = self._no_image(input_ids_BT)
        return self.joint_encoder(input_ids_BT, text_mask_BT, nothing_B1D, absent_B1)[0]

    def embed_images(
        self, tokens_BRD: Tensor, cls_id: int, image_mask_BR: Tensor | None = None
    ) -> Tensor:
        """Returns the bi-encoder's embeddings, float32 [B, D]; without a mask, all tokens count.

        The text side is [CLS] alone, as in the paper's code: no [SEP].
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
        """Returns which words the text may have at the places where `at_BT` is true, [M, V].

        Text and image are read together, by the CE's encoder if there are two; without a mask, all
        image tokens count. A word scores as its embedding's product with what was read at the
        place, row after row. Only training asks.
        """
        encoder = encoders_in(self.joint_encoder)[-1]
        assert isinstance(encoder, (JointEncoder, PretrainedEncoder)), "two of them at most"
        mask_BR = _all_count(tokens_BRD) if image_mask_BR is None else image_mask_BR
        hidden_BLD = encoder.hidden_states(input_ids_BT, text_mask_BT, tokens_BRD, mask_BR)
        return hidden_BLD[:, : input_ids_BT.shape[1]][at_BT] @ encoder.word.weight.T

    def _no_image(self, input_ids_BT: Tensor) -> tuple[Tensor, Tensor]:
        batch, device = len(input_ids_BT), input_ids_BT.device
        nothing_B1D = torch.zeros(batch, 1, self.config.token_width, device=device)
        return nothing_B1D, torch.zeros(batch, 1, dtype=torch.int64, device=device)


def _encoder(config: JointConfig) -> JointEncoder | PretrainedEncoder:
    return PretrainedEncoder(config) if config.encoder == "post_norm" else JointEncoder(config)


def _all_count(tokens_BRD: Tensor) -> Tensor:
    return torch.ones(tokens_BRD.shape[:2], dtype=torch.int64, device=tokens_BRD.device)


class _Layer(nn.Module):
    """A pre-norm transformer layer."""

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        width, inner_width = config.width, config.feed_forward_width or 4 * config.width
        self.head_count = config.head_count
        self.attention_norm = nn.LayerNorm(width, config.norm_epsilon)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.feed_forward_norm = nn.LayerNorm(width, config.norm_epsilon)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, inner_width),
            nn.GELU(),
            nn.Linear(inner_width, width),
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x_BLD: Tensor, attends_B11L: Tensor) -> Tensor:
        mixed_BLD = multi_head_attention(
            self.query_key_value(self.attention_norm(x_BLD)),
            attends_B11L,
            self.head_count,
            is_training=self.training,
        )
        x_BLD = x_BLD + self.dropout(self.attention_out(mixed_BLD))
        return x_BLD + self.dropout(self.feed_forward(self.feed_forward_norm(x_BLD)))
