"""Defines the text side of two towers: BERT's layers over words only.

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
        return self.above(self.below(input_ids, text_mask, 0), text_mask, 0)

    def below(self, input_ids: Tensor, text_mask: Tensor, last_count: int) -> Tensor:
        """Returns the input of the last `last_count` layers, float32 [B, T, D]."""
        text_BTD = self.word(input_ids) + self.text_position[: input_ids.shape[1]]
        if self.token_type is not None:
            text_BTD = text_BTD + self.token_type[0]
        hidden_BTD: Tensor = self.dropout(self.embedding_norm(text_BTD))
        return _through(self.layers[: len(self.layers) - last_count], hidden_BTD, text_mask)

    def above(self, hidden_BTD: Tensor, text_mask: Tensor, last_count: int) -> Tensor:
        """Returns the last layer's output, float32 [B, T, D], of the last layers' input."""
        layers = self.layers[len(self.layers) - last_count :]
        states_BTD: Tensor = self.final_norm(_through(layers, hidden_BTD, text_mask)).float()
        return states_BTD


class TextTop(nn.Module):
    """Holds copies of a text trunk's last layers, which read what its own last layers read."""

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        is_bert = config.encoder == "post_norm"
        layer = PostNormLayer if is_bert else PreNormLayer
        self.layers = nn.ModuleList(layer(config) for _ in range(config.matcher_layer_count))
        width = config.width
        self.final_norm = nn.Identity() if is_bert else nn.LayerNorm(width, config.norm_epsilon)

    def forward(self, hidden_BTD: Tensor, text_mask: Tensor) -> Tensor:
        """Returns the last layer's output, float32 [B, T, D]."""
        states_BTD: Tensor = self.final_norm(_through(self.layers, hidden_BTD, text_mask)).float()
        return states_BTD

    def start(self, trunk: TextTrunk) -> None:
        last = trunk.layers[len(trunk.layers) - len(self.layers) :]
        self.layers.load_state_dict(last.state_dict())
        self.final_norm.load_state_dict(trunk.final_norm.state_dict())


def _through(layers: nn.ModuleList, hidden_BTD: Tensor, text_mask: Tensor) -> Tensor:
    attends_B11T = text_mask.bool()[:, None, None, :]
    for layer in layers:
        hidden_BTD = layer(hidden_BTD, attends_B11T)
    return hidden_BTD
