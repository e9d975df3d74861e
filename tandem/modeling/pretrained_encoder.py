"""BERT's encoder as a joint encoder, in plain torch: what a published checkpoint is put into.

Its layers are post-norm, as BERT's, MiniLM's and XLM-R's are; `published_checkpoint` says which
published weight goes where. Nothing here needs the library that those checkpoints are made with,
so ours stay self-contained.

Shapes: B batch, T text tokens, R image tokens, L = T + R, D width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tandem.modeling.attention import multi_head_attention
from tandem.modeling.config import JointConfig
from tandem.modeling.pooling import first_and_mean, mean_of_counted


class PretrainedEncoder(nn.Module):
    """Reads text tokens, image tokens, or both, as `JointEncoder` does; random until converted."""

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        width = config.width
        self.word = nn.Embedding(config.vocabulary_size, width)
        self.text_position = nn.Parameter(torch.randn(config.max_text_tokens, width) * 0.02)
        # Type 0 is a text's, type 1 an image's. A published table of one row gets a second of
        # zeros, which is the same function until it learns.
        self.token_type = nn.Parameter(torch.randn(2, width) * 0.02)
        self.embedding_norm = nn.LayerNorm(width, config.norm_epsilon)
        # As large as in JointEncoder, for its reason: a smaller place drowns in its content.
        side = config.grid_side
        self.has_places = side > 0  # a region says itself where it is
        self.image_row = nn.Parameter(torch.randn(side, 1, width) * 0.5)
        self.image_column = nn.Parameter(torch.randn(1, side, width) * 0.5)
        self.image_project = nn.Linear(config.token_width, width)
        self.image_norm = nn.LayerNorm(width, config.norm_epsilon)
        self.layers = nn.ModuleList(PostNormLayer(config) for _ in range(config.layer_count))
        self.pooler = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(width, 2)  # no match, match
        nn.init.normal_(self.word.weight, std=0.02)

    def forward(
        self, input_ids: Tensor, text_mask: Tensor, image_tokens: Tensor, image_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the embedding and the match logit of each row, as JointEncoder.forward does."""
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
        """Returns the last layer's output, [B, L, D]; the text's positions come first.

        A text beside absent image tokens gives, at its positions, what the published model gives.
        """
        text = self.word(input_ids) + self.text_position[: input_ids.shape[1]] + self.token_type[0]
        text_BTD = self.dropout(self.embedding_norm(text))
        image = self.image_project(image_tokens.to(self.image_row.dtype)) + self.token_type[1]
        if self.has_places:
            places_RD = (self.image_row + self.image_column).flatten(0, 1)
            image = image + places_RD[: image_tokens.shape[1]]
        image_BRD = self.dropout(self.image_norm(image)).to(text_BTD.dtype)
        hidden_BLD = torch.cat([text_BTD, image_BRD], dim=1)
        attends_B11L = torch.cat([text_mask, image_mask], dim=1).bool()[:, None, None, :]
        for layer in self.layers:
            hidden_BLD = layer(hidden_BLD, attends_B11L)
        return hidden_BLD


class PostNormLayer(nn.Module):
    """A transformer layer that normalises after it adds."""

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        width, inner_width = config.width, config.feed_forward_width or 4 * config.width
        self.head_count = config.head_count
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, config.norm_epsilon)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, inner_width), nn.GELU(), nn.Linear(inner_width, width)
        )
        self.feed_forward_norm = nn.LayerNorm(width, config.norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x_BLD: Tensor, attends_B11L: Tensor) -> Tensor:
        """Returns [B, L, D]; every position reads those that `attends_B11L` is true for."""
        mixed_BLD = multi_head_attention(
            self.query_key_value(x_BLD),
            attends_B11L,
            self.head_count,
            is_training=self.training,
            dropout=self.dropout.p,
        )
        mixed_BLD = self.attention_out(mixed_BLD)
        x_BLD = self.attention_norm(x_BLD + self.dropout(mixed_BLD))
        return self.feed_forward_norm(x_BLD + self.dropout(self.feed_forward(x_BLD)))
