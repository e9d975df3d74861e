"""Reads VisualBERT (Li et al. 2019) through transformers' configuration.

BERT with one linear layer more, from a detector's features to its width; boxes are not read. Words
and regions share one norm, and every region has the same position and type.

Its head was trained to say whether a second caption belongs to the picture that a first one
describes, so it was not trained for a single caption, and no checkpoint was trained as a
bi-encoder. It is a starting point for training, not a retriever.

Shapes: B batch, T text tokens, R regions, L = T + R, D features of a region, W width.
"""

from typing import Final

import torch
from torch import Tensor, nn

from tandem.model_io.pictures.image_rules import BoxNumbers, RegionRules
from tandem.modeling.config import JointConfig
from tandem.modeling.families.loaded_model import read_config
from tandem.modeling.families.published_model import PublishedModel
from tandem.modeling.families.regions.region_encoder import MatchHead, RegionEncoder
from tandem.modeling.families.regions.region_head import take_head
from tandem.modeling.families.regions.region_model import bert_sources, region_config, region_model
from tandem.modeling.published.folder import PublishedFolder
from tandem.modeling.published.weights import present_names

MAX_TEXT_TOKENS: Final = 128
MAX_REGIONS: Final = 100
_PARTS: Final = {"image_project": "embeddings.visual_projection", "norm": "embeddings.LayerNorm"}
_HEAD: Final = "cls.seq_relationship"
_OTHER_HEADS: Final = r"cls\.(predictions\.|weight$|bias$)|classifier\.|attention\."
_NOT_TRAINED: Final = (
    "It was pretrained with two captions a picture, and not for retrieval: train it on pairs first."
)


class VisualBertEncoder(RegionEncoder):
    """VisualBERT's encoder; text comes first."""

    family, architecture = "visual_bert", "VisualBertForPreTraining"

    def __init__(self, config: JointConfig, feature_width: int, head: MatchHead | None) -> None:
        super().__init__(config, head)
        self.token_type = nn.Embedding(2, config.width)
        self.image_position = nn.Embedding(config.max_text_tokens, config.width)
        self.image_type = nn.Embedding(2, config.width)
        self.image_project = nn.Linear(feature_width, config.width)
        self.norm = nn.LayerNorm(config.width, config.norm_epsilon)

    def embedded(
        self, token_ids: Tensor, text_mask: Tensor, regions_BRD: Tensor, region_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        places_TW = self.position.weight[: token_ids.shape[1]] + self.token_type.weight[0]
        text_BTW = self.word(token_ids) + places_TW
        place_W = self.image_position.weight[0] + self.image_type.weight[1]
        image_BRW = self.image_project(regions_BRD) + place_W
        hidden_BLW = self.norm(torch.cat([text_BTW, image_BRW], 1))
        return hidden_BLW, torch.cat([text_mask, region_mask], 1)


def read_visual_bert(folder: PublishedFolder) -> PublishedModel:
    """Returns the model of a folder; raises PublishedCheckpointInvalid naming what is wrong."""
    from transformers import VisualBertConfig

    settings = read_config(folder, VisualBertConfig, folder.config())
    # Otherwise its regions go past most layers.
    folder.check_served(settings.to_dict(), {"bypass_transformer": (False,)})
    config = region_config(folder, settings.to_dict())
    weights = present_names(folder.read_weights(), "visual_bert.")
    taken = take_head(folder, weights, None, (_HEAD,), "pooler.dense")
    model = VisualBertEncoder(config, settings.visual_embedding_dim, taken.head)
    sources = {
        **bert_sources(config.layer_count, **_PARTS),
        "image_position.weight": ("embeddings.visual_position_embeddings.weight",),
        "image_type.weight": ("embeddings.visual_token_type_embeddings.weight",),
    }
    filled = taken.fill(folder, model, sources, _OTHER_HEADS)
    if model.head is not None:
        model.head.has_match_first = True
    rules = RegionRules(
        feature_width=settings.visual_embedding_dim,
        box_numbers=BoxNumbers.NONE,
        max_regions=MAX_REGIONS,
    )
    notes = (*taken.notes, *((_NOT_TRAINED,) if model.head else ()))
    return region_model(folder, model, rules, filled, notes, max_tokens=MAX_TEXT_TOKENS)
