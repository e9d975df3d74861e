"""Reads UNITER and VILLA (Chen et al. 2020, Gan et al. 2020).

A region is the sum of three: its features and seven numbers of its box, each projected and
normalised, and token type 1; then one more norm. A folder has the authors' weights as
pytorch_model.bin, their config.json, and the tokenizer of BERT-base-cased.

Shapes: B batch, T text tokens, R regions, L = T + R, F features, W width.
"""

from typing import Final

import torch
from torch import Tensor, nn

from tandem.model_io.pictures.image_rules import BoxNumbers, RegionRules
from tandem.modeling.config import JointConfig
from tandem.modeling.families.published_model import PublishedModel
from tandem.modeling.families.regions.region_encoder import MatchHead, RegionEncoder
from tandem.modeling.families.regions.region_head import OfMmt, take_head
from tandem.modeling.families.regions.region_model import bert_sources, region_config, region_model
from tandem.modeling.published.files import TOKENIZER
from tandem.modeling.published.folder import PublishedFolder
from tandem.modeling.published.weights import ENDS, present_names

MAX_REGIONS: Final = 100
_FEATURES: Final = "img_embeddings.img_linear.weight"
_BOX: Final = BoxNumbers.CORNERS_SIDES_AREA
_PARTS: Final = {
    "text_norm": "embeddings.LayerNorm",
    "feature_project": "img_embeddings.img_linear",
    "feature_norm": "img_embeddings.img_layer_norm",
    "box_project": "img_embeddings.pos_linear",
    "box_norm": "img_embeddings.pos_layer_norm",
    "image_norm": "img_embeddings.LayerNorm",
}
# Of pretraining; the mask stands for regions that are to be guessed.
_PRETRAINING: Final = r"cls\.|feat_regress\.|region_classifier\.|img_embeddings\.mask_embedding\."


class UniterEncoder(RegionEncoder):
    """UNITER's encoder; text comes first."""

    family, architecture = "uniter", "UniterModel"

    def __init__(self, config: JointConfig, feature_width: int, head: MatchHead | None) -> None:
        super().__init__(config, head)
        width, epsilon = config.width, config.norm_epsilon
        self.feature_width = feature_width
        self.token_type = nn.Embedding(2, width)
        self.text_norm = nn.LayerNorm(width, epsilon)
        self.feature_project = nn.Linear(feature_width, width)
        self.feature_norm = nn.LayerNorm(width, epsilon)
        self.box_project = nn.Linear(_BOX.width, width)
        self.box_norm = nn.LayerNorm(width, epsilon)
        self.image_norm = nn.LayerNorm(width, epsilon)

    def embedded(
        self, token_ids: Tensor, text_mask: Tensor, regions_BRD: Tensor, region_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        places_TW = self.position.weight[: token_ids.shape[1]] + self.token_type.weight[0]
        text_BTW = self.text_norm(self.word(token_ids) + places_TW)
        features_BRW = self.feature_norm(
            self.feature_project(regions_BRD[:, :, : self.feature_width])
        )
        boxes_BRW = self.box_norm(self.box_project(regions_BRD[:, :, self.feature_width :]))
        image_BRW = self.image_norm(features_BRW + boxes_BRW + self.token_type.weight[1])
        return torch.cat([text_BTW, image_BRW], 1), torch.cat([text_mask, region_mask], 1)


def read_uniter(folder: PublishedFolder, mmt: OfMmt | None = None) -> PublishedModel:
    """Returns the model of a folder; raises PublishedCheckpointInvalid naming what is wrong.

    Pairs are scored by the ranking head where there is one, else by the matching head's second
    number alone, from which the authors' ranking head begins.
    """
    config = region_config(folder, folder.config())
    _check_cased(folder)
    weights = present_names(folder.read_weights(), "module.", "uniter.")
    with folder.reading("it is not UNITER's or VILLA's"):
        feature_width = weights[_FEATURES].shape[1]
    if "rank_output.weight" not in weights:
        for end in ENDS:
            both = weights.get(f"itm_output.{end}")
            if both is not None and both.shape[:1] == (2,):
                weights[f"rank_output.{end}"] = both[1:]
    taken = take_head(folder, weights, mmt, ("rank_output", "itm_output"), "pooler.dense")
    model = UniterEncoder(config, feature_width, taken.head)
    filled = taken.fill(folder, model, bert_sources(config.layer_count, **_PARTS), _PRETRAINING)
    rules = RegionRules(feature_width=feature_width, box_numbers=_BOX, max_regions=MAX_REGIONS)
    return region_model(folder, model, rules, filled, taken.notes, mmt)


def _check_cased(folder: PublishedFolder) -> None:
    """Refuses a vocabulary alone, which would be read as one of lower-case words."""
    is_lower_case = folder.optional_fields("tokenizer_config.json").get("do_lower_case")
    if not folder.has(TOKENIZER) and is_lower_case is not False:
        raise folder.refused(
            "its vocabulary has upper-case letters, and nothing says so: add tokenizer_config.json "
            'with {"do_lower_case": false}, or the tokenizer.json of bert-base-cased'
        )
