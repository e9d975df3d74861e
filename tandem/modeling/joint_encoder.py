"""Defines the joint encoder: one set of weights that is both bi-encoder and cross-encoder.

A single-stream transformer reads a text, an image, or both (Geigle et al. 2022, section 3.3). One
side alone gives the bi-encoder's embedding; both sides give the cross-encoder's match logit. Only
the masks differ.

The two kinds of `JointConfig.encoder` share everything but three details. "pre_norm" is our own,
trained from random weights. "post_norm" is BERT's layout, which published checkpoints of BERT,
MiniLM, RoBERTa and XLM-R fill (published/weights.py): it normalises after each residual sum and has
no final norm, adds a token type, and gives image tokens a norm of their own. It is plain torch, so
our checkpoints do not need transformers.

Shapes: B batch, T text tokens, R image tokens, L = T + R, D width (image tokens may have another
width before they are projected), H heads, W width of a head, E = 3 D.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tandem.modeling.config import JointConfig

# Finite, so that softmax stays finite for a row that attends to nothing.
_UNATTENDED_SCORE = -1e4


class JointEncoder(nn.Module):
    """Reads text tokens, image tokens, or both."""

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        width, is_bert = config.width, config.encoder == "post_norm"
        self.word = nn.Embedding(config.vocabulary_size, width)
        self.text_position = nn.Parameter(torch.randn(config.max_text_tokens, width) * 0.02)
        # Type 0 is text, type 1 is image. A published table of one row gets a second row of zeros,
        # which leaves the function unchanged until it learns.
        self.token_type = nn.Parameter(torch.randn(2, width) * 0.02) if is_bert else None
        # As large as what they are added to: at the usual 0.02 a token's position drowned in its
        # content, and after 1,000 rounds the model still confused left and right.
        side = config.grid_side
        self.has_positions = side > 0  # a region's vector includes its box
        self.image_row = nn.Parameter(torch.randn(side, 1, width) * 0.5)
        self.image_column = nn.Parameter(torch.randn(1, side, width) * 0.5)
        self.image_project = nn.Linear(config.token_width, width)
        self.embedding_norm = nn.LayerNorm(width, config.norm_epsilon)
        self.image_norm = nn.LayerNorm(width, config.norm_epsilon) if is_bert else None
        layer = PostNormLayer if is_bert else PreNormLayer
        self.layers = nn.ModuleList(layer(config) for _ in range(config.layer_count))
        self.embeds_first = config.embedding_pooling == "cls"
        self.final_norm = nn.Identity() if is_bert else nn.LayerNorm(width, config.norm_epsilon)
        self.pooler = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(width, 2)  # no match, match
        nn.init.normal_(self.word.weight, std=0.02)

    def forward(
        self, input_ids: Tensor, text_mask: Tensor, image_tokens: Tensor, image_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the embedding and the match logit of each row.

        input_ids, text_mask: int64 [B, T]; image_tokens: float [B, R, D]; image_mask: int64
        [B, R]. A mask is 1 where a token counts. Returns float32 [B, D] of unit length, the mean
        over all positions that count or the first one (`JointConfig.embedding_pooling`), and
        float32 [B, 1], z1 - z0 of the two-class head: the log odds of a match, which rank as its
        probability does but do not saturate.
        """
        hidden_BLD = self.hidden_states(input_ids, text_mask, image_tokens, image_mask).float()
        mask_BL = torch.cat([text_mask, image_mask], dim=1)
        mean_BD = mean_of_counted(hidden_BLD, mask_BL)
        read_BW = first_and_mean(hidden_BLD, mean_BD, mask_BL)
        pooled = self.dropout(torch.tanh(self.pooler(read_BW)))
        logits_B2 = self.classifier(pooled).float()
        embedding_BD = hidden_BLD[:, 0] if self.embeds_first else mean_BD
        return F.normalize(embedding_BD, dim=-1), logits_B2[:, 1:] - logits_B2[:, :1]

    def hidden_states(
        self, input_ids: Tensor, text_mask: Tensor, image_tokens: Tensor, image_mask: Tensor
    ) -> Tensor:
        """Returns the last layer's output, [B, L, D], text positions first.

        With all image tokens masked, a published model's text positions equal that model's own.
        """
        text_BTD = self._embedded_texts(input_ids)
        image_BRD = self._embedded_images(image_tokens).to(text_BTD.dtype)
        hidden_BLD = torch.cat([text_BTD, image_BRD], dim=1)
        attends_B11L = torch.cat([text_mask, image_mask], dim=1).bool()[:, None, None, :]
        for layer in self.layers:
            hidden_BLD = layer(hidden_BLD, attends_B11L)
        states_BLD: Tensor = self.final_norm(hidden_BLD)
        return states_BLD

    def _embedded_texts(self, input_ids: Tensor) -> Tensor:
        text = self.word(input_ids) + self.text_position[: input_ids.shape[1]]
        if self.token_type is not None:
            text = text + self.token_type[0]
        embedded: Tensor = self.dropout(self.embedding_norm(text))
        return embedded

    def _embedded_images(self, image_tokens: Tensor) -> Tensor:
        image = self.image_project(image_tokens.to(self.image_row.dtype))
        if self.token_type is not None:
            image = image + self.token_type[1]
        if self.has_positions:
            positions_RD = (self.image_row + self.image_column).flatten(0, 1)
            image = image + positions_RD[: image_tokens.shape[1]]
        norm = self.embedding_norm if self.image_norm is None else self.image_norm
        embedded: Tensor = self.dropout(norm(image))
        return embedded


class _Layer(nn.Module):
    """Holds what both kinds of transformer layer have; they differ in where they normalise."""

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        width, inner_width = config.width, config.feed_forward_width or 4 * config.width
        self.head_count = config.head_count
        self.attention_norm = nn.LayerNorm(width, config.norm_epsilon)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.feed_forward_norm = nn.LayerNorm(width, config.norm_epsilon)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, inner_width), nn.GELU(), nn.Linear(inner_width, width)
        )
        self.dropout = nn.Dropout(config.dropout)

    def _attended(self, x_BLD: Tensor, attends_B11L: Tensor) -> Tensor:
        mixed_BLD = multi_head_attention(
            self.query_key_value(x_BLD),
            attends_B11L,
            self.head_count,
            is_training=self.training,
            dropout=self.dropout.p,
        )
        attended_BLD: Tensor = self.dropout(self.attention_out(mixed_BLD))
        return attended_BLD


class PreNormLayer(_Layer):
    """Normalises the input of each block, so that the residual path stays untouched."""

    def forward(self, x_BLD: Tensor, attends_B11L: Tensor) -> Tensor:
        """Returns [B, L, D]; every position reads those where `attends_B11L` is true."""
        x_BLD = x_BLD + self._attended(self.attention_norm(x_BLD), attends_B11L)
        return x_BLD + self.dropout(self.feed_forward(self.feed_forward_norm(x_BLD)))


class PostNormLayer(_Layer):
    """Normalises each residual sum, as BERT does."""

    def forward(self, x_BLD: Tensor, attends_B11L: Tensor) -> Tensor:
        """Returns [B, L, D]; every position reads those where `attends_B11L` is true."""
        x_BLD = self.attention_norm(x_BLD + self._attended(x_BLD, attends_B11L))
        normed_BLD: Tensor = self.feed_forward_norm(x_BLD + self.dropout(self.feed_forward(x_BLD)))
        return normed_BLD


def multi_head_attention(
    query_key_value_BLE: Tensor,
    attends_B11L: Tensor,
    head_count: int,
    *,
    is_training: bool,
    dropout: float = 0.0,
) -> Tensor:
    """Returns each position's attention output, [B, L, D], of concatenated queries, keys, values.

    Every position attends to those where `attends_B11L` is true; where there is none, the result is
    finite but meaningless. `dropout` applies to attention weights in training. Outside training a
    fused kernel gives the same result up to rounding, except in bf16 (decision 31).
    """
    batch, length, _ = query_key_value_BLE.shape
    heads = query_key_value_BLE.view(batch, length, 3, head_count, -1)
    q_BHLW, k_BHLW, v_BHLW = heads.permute(2, 0, 3, 1, 4).unbind(0)
    if is_training or query_key_value_BLE.dtype is torch.bfloat16:
        # Written out: at these lengths the fused CPU kernel's backward pass takes twice as long.
        # In bf16 its forward pass is slower too, and its rounding depends on the padding.
        scores_BHLL = (q_BHLW @ k_BHLW.transpose(-2, -1)) * q_BHLW.shape[-1] ** -0.5
        scores_BHLL = scores_BHLL.masked_fill(~attends_B11L, _UNATTENDED_SCORE)
        weights_BHLL = F.dropout(scores_BHLL.softmax(-1), dropout, training=is_training)
        mixed_BHLW = weights_BHLL.to(v_BHLW.dtype) @ v_BHLW
    else:
        mixed_BHLW = F.scaled_dot_product_attention(q_BHLW, k_BHLW, v_BHLW, attends_B11L)
    return mixed_BHLW.transpose(1, 2).reshape(batch, length, -1)


def mean_of_counted(hidden_BLD: Tensor, mask_BL: Tensor) -> Tensor:
    """Returns [B, D], the mean over all positions that count.

    This is the embedding before it is normalised, unless a model embeds its first position. Geigle
    et al. 2022 (footnote 7) found the mean better than [CLS].
    """
    weights_BL1 = mask_BL[:, :, None].to(hidden_BLD.dtype)
    return (hidden_BLD * weights_BL1).sum(1) / weights_BL1.sum(1).clamp_min(1e-9)


def first_and_mean(hidden_BLD: Tensor, mean_BD: Tensor, mask_BL: Tensor) -> Tensor:
    """Returns [B, 2 D], first token and mean, for the match head.

    A head that reads only the first token, as BERT's, cannot count objects: attention averages.
    """
    first_BD = hidden_BLD[:, 0] * mask_BL[:, :1]  # zero where it is masked
    return torch.cat([first_BD, mean_BD], dim=-1)
