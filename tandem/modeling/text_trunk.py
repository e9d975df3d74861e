"""Defines the text side of two towers: BERT's layers over the words alone.

Shapes: B batch, T text tokens, D width.
"""

from torch import Tensor, nn

from tandem.modeling.config import JointConfig
from tandem.modeling.joint_encoder import PostNormLayer, PreNormLayer


class TextTrunk(nn.Module):
    """Reads text tokens; its weights have the names of JointEncoder's text side."""

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        width, is_bert = config.width, config.encoder == "post_norm"
        self.word = nn.Embedding(config.vocabulary_size, width)
        self.text_position = nn.Parameter(Tensor(config.max_text_tokens, width))
        self.token_type = nn.Parameter(Tensor(2, width)) if is_bert else None
        self.embedding_norm = nn.LayerNorm(width, config.norm_epsilon)
        layer = PostNormLayer if is_bert else PreNormLayer
        self.layers = nn.ModuleList(layer(config) for _ in range(config.layer_count))
        self.final_norm = nn.Identity() if is_bert else nn.LayerNorm(width, config.norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)
        for table in (self.word.weight, self.text_position, self.token_type):
            if table is not None:
                nn.init.normal_(table, std=0.02)

    def forward(self, input_ids: Tensor, text_mask: Tensor) -> Tensor:
        """int64 [B, T] twice -> the last layer's output, float32 [B, T, D]."""
        text_BTD = self.word(input_ids) + self.text_position[: input_ids.shape[1]]
        if self.token_type is not None:
            text_BTD = text_BTD + self.token_type[0]
        hidden_BTD = self.dropout(self.embedding_norm(text_BTD))
        attends_B11T = text_mask.bool()[:, None, None, :]
        for layer in self.layers:
            hidden_BTD = layer(hidden_BTD, attends_B11T)
        states_BTD: Tensor = self.final_norm(hidden_BTD).float()
        return states_BTD
