"""Serves the cross-encoder of ViLT's retrieval models.

Shapes: B batch, S pixels per side, T text tokens, R image tokens, D width.

One transformer reads words and patches together, so what can be kept of a picture is its patch
embeddings: little is saved by keeping them. transformers' own image side draws patches at random
and loops over the pictures of a batch. For squares of one size it computes what is here, which is
deterministic and can be exported.
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
    from transformers import ViltForImageAndTextRetrieval

_NOTES: Final = (
    "Pictures are squashed to a square; its authors keep their shape, so scores of pictures that "
    "are not squares differ from theirs.",
    "Its logits are made for ranking, and are no probabilities.",
)


def read_vilt(folder: PublishedFolder) -> PublishedModel:
    """Returns the cross-encoder of a ViLT that was trained for retrieval."""
    from transformers import ViltConfig, ViltForImageAndTextRetrieval

    config = read_config(folder, ViltConfig, folder.config())
    image, scale = read_image_rules(
        folder, "ViltImageProcessor", config.image_size, is_squashed=True
    )
    tokenizer, text = read_text_rules(
        folder,
        vocabulary_size=config.vocab_size,
        position_count=config.max_position_embeddings,
    )
    model = load_model(folder, ViltForImageAndTextRetrieval, config, attention="eager")
    parts = CrossEncoderParts(
        score_pair=ViltPair(model).eval(),
        image_tokens=ViltImageTokens(model, scale).eval(),
        text=text,
        image=image,
        image_token_count=model.vilt.embeddings.position_embeddings.shape[1],
        token_width=config.hidden_size,
    )
    read = described(
        folder,
        "vilt",
        type(model).__name__,
        tokenizer,
        model,
        notes=_NOTES,
        cross_encoder=parts,
    )
    return replace(read, weights=model.state_dict)


class ViltImageTokens(nn.Module):
    """Turns a square picture into the patch embeddings that ViltPair reads."""

    def __init__(self, model: "ViltForImageAndTextRetrieval", scale: PixelScale) -> None:
        super().__init__()
        self.scale = scale
        embeddings = model.vilt.embeddings
        self.patches = embeddings.patch_embeddings
        self.first_11D = embeddings.cls_token
        self.position_1RD = embeddings.position_embeddings

    def forward(self, pixels_BSS3: Tensor) -> Tensor:
        patches_BRD = self.patches(self.scale(pixels_BSS3)).flatten(2).transpose(1, 2)
        first_B1D = self.first_11D.expand(patches_BRD.shape[0], -1, -1)
        tokens_BRD = torch.cat([first_B1D, patches_BRD], dim=1) + self.position_1RD
        # In training they keep their type: in float16 their gradients would vanish.
        return tokens_BRD if self.training else tokens_BRD.half()


class ViltPair(nn.Module):
    """Scores a text and the patch embeddings of a picture."""

    def __init__(self, model: "ViltForImageAndTextRetrieval") -> None:
        super().__init__()
        self.model = model.vilt
        self.head = model.rank_output

    def forward(
        self, token_ids_BT: Tensor, text_mask_BT: Tensor, tokens_BRD: Tensor, image_mask_BR: Tensor
    ) -> Tensor:
        read = self.model(
            input_ids=token_ids_BT,
            attention_mask=text_mask_BT,
            token_type_ids=torch.zeros_like(token_ids_BT),
            image_embeds=tokens_BRD.float(),
            pixel_mask=image_mask_BR,
        )
        return self.head(read.pooler_output)
