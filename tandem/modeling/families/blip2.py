"""Serves the cross-encoder (ITM) of BLIP-2's retrieval models.

Shapes: B batch, S pixels per side, T text tokens, R image tokens, D width, Q queries.

Its bi-encoder cannot be served: the similarity of a picture is the largest of those of its 32
query vectors, and an index holds one embedding an item.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn

from tandem.modeling.families.described import described
from tandem.modeling.families.image_rules import read_image_rules
from tandem.modeling.families.loaded_model import load_model, read_config
from tandem.modeling.families.published_model import CrossEncoderParts, PublishedModel
from tandem.modeling.families.text_rules import read_text_rules
from tandem.modeling.image_sources.pixel_scale import PixelScale
from tandem.modeling.published.folder import PublishedFolder

if TYPE_CHECKING:
    from transformers import Blip2ForImageTextRetrieval

# The authors cut captions to this many tokens.
_MAX_TOKENS: Final = 35
_NO_BI_ENCODER: Final = (
    "Its bi-encoder is not served: a picture's similarity is the largest of those of {count} "
    "query vectors, and an index holds one embedding an item. Add a bi-encoder of another model."
)


def read_blip2(folder: PublishedFolder) -> PublishedModel:
    """Returns the cross-encoder of a BLIP-2 that was trained for retrieval."""
    from transformers import Blip2Config, Blip2ForImageTextRetrieval

    config = read_config(folder, Blip2Config, folder.config())
    vision, reader = config.vision_config, config.qformer_config
    image, scale = read_image_rules(folder, "BlipImageProcessor", vision.image_size)
    tokenizer, text = read_text_rules(
        folder,
        vocabulary_size=reader.vocab_size,
        position_count=min(_MAX_TOKENS, reader.max_position_embeddings),
    )
    model = load_model(folder, Blip2ForImageTextRetrieval, config)
    parts = CrossEncoderParts(
        score_pair=Blip2Pair(model).eval(),
        image_tokens=Blip2ImageTokens(model, scale).eval(),
        text=text,
        image=image,
        image_token_count=model.vision_model.embeddings.num_positions,
        token_width=vision.hidden_size,
    )
    notes = (_NO_BI_ENCODER.format(count=config.num_query_tokens),)
    read = described(
        folder,
        "blip-2",
        type(model).__name__,
        tokenizer,
        model,
        notes=notes,
        cross_encoder=parts,
    )
    return replace(read, weights=model.state_dict)


class Blip2ImageTokens(nn.Module):
    """Turns a picture into the tokens that Blip2Pair reads."""

    def __init__(self, model: "Blip2ForImageTextRetrieval", scale: PixelScale) -> None:
        super().__init__()
        self.scale = scale
        self.encoder = model.vision_model

    def forward(self, pixels_BSS3: Tensor) -> Tensor:
        tokens_BRD = self.encoder(self.scale(pixels_BSS3)).last_hidden_state
        # In training they keep their type: in float16 their gradients would vanish.
        return tokens_BRD if self.training else tokens_BRD.half()


class Blip2Pair(nn.Module):
    """Scores a text and the tokens of a picture: the queries read both at once.

    Calls the reader's layers, not the reader, which makes the mask of a picture as long as queries
    and text together, where only the queries read the picture: with a mask it fails.
    """

    def __init__(self, model: "Blip2ForImageTextRetrieval") -> None:
        super().__init__()
        self.queries_1QD = model.query_tokens
        self.embeddings = model.embeddings
        self.norm = model.qformer.layernorm
        self.layers = model.qformer.encoder
        self.head = model.itm_head

    def forward(
        self, token_ids_BT: Tensor, text_mask_BT: Tensor, tokens_BRD: Tensor, image_mask_BR: Tensor
    ) -> Tensor:
        """Returns the logit [B, 1] that both match, the mean over the queries."""
        query_count = self.queries_1QD.shape[1]
        queries_BQD = self.queries_1QD.expand(token_ids_BT.shape[0], -1, -1)
        embedded = self.embeddings(input_ids=token_ids_BT, query_embeds=queries_BQD)
        query_mask_BQ = torch.ones_like(queries_BQD[:, :, 0], dtype=text_mask_BT.dtype)
        read = self.layers(
            self.norm(embedded),
            attention_mask=_added(torch.cat([query_mask_BQ, text_mask_BT], dim=1)),
            encoder_hidden_states=tokens_BRD.float(),
            encoder_attention_mask=_added(image_mask_BR),
            query_length=query_count,
        )
        logits_B2 = self.head(read.last_hidden_state[:, :query_count]).mean(dim=1)
        return logits_B2[:, 1:] - logits_B2[:, :1]


def _added(mask: Tensor) -> Tensor:
    """Returns what to add to attention scores [B, heads, any, keys] to ignore masked positions."""
    return (1 - mask[:, None, None].float()) * torch.finfo(torch.float32).min
