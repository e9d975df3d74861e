"""Reads M3P (Ni et al. 2021), whose texts are in a hundred languages.

XLM-R's words, and regions before the text: both get positions over the whole sequence and one more
norm. The match head reads the first region. A folder has the authors' weights, as
m3p_under_weights.pth or any other single .pth or .pt, and the tokenizer.json of xlm-roberta-base.

Shapes: B batch, T text tokens, R regions, L = R + T, F features, W width.
"""

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tandem.model_io.pictures.image_rules import BoxNumbers, RegionRules
from tandem.modeling.checkpoint_files import WEIGHTS as TRAINED_WEIGHTS
from tandem.modeling.config import JointConfig
from tandem.modeling.families.published_model import PublishedModel
from tandem.modeling.families.regions.region_encoder import MatchHead, RegionEncoder
from tandem.modeling.families.regions.region_head import OfMmt, take_head
from tandem.modeling.families.regions.region_model import region_model
from tandem.modeling.published.folder import PublishedFolder
from tandem.modeling.published.weights import both_ends, present_names

MAX_REGIONS: Final = 100
WEIGHTS_NAME: Final = "m3p_under_weights.pth"
_HEAD_WIDTH: Final = 64
_BOX: Final = BoxNumbers.CORNERS_AREA
_WORDS, _POSITIONS = "embeddings.weight", "position_embeddings.weight"
_FEATURES: Final = "image_embeddings.image_embeddings.weight"
_LAYER_PARTS: Final = {
    "attention_out": "attentions.{}.out_lin",
    "attention_norm": "layer_norm1.{}",
    "feed_forward.0": "ffns.{}.lin1",
    "feed_forward.2": "ffns.{}.lin2",
    "feed_forward_norm": "layer_norm2.{}",
}
# Of pretraining and of generating captions. One name is misspelled in the authors' files.
_OTHER_TASKS: Final = (
    r"image_embeddings\.image_distbution_embeddings\.|refine_embeddings\.|cross_alignment\.|"
    r"encoder_attn\.|layer_norm15\.|mrfr_dense\.|transformer_obj\.|cross_lang_embeddings\.|"
    r"pred_layer\.|pred_obj_layer\.|latent_transforms\.|original_transforms\.|"
    r"pooled_layer2\.|seq_relationship2\."
)


class M3pEncoder(RegionEncoder):
    """M3P's encoder; regions come first."""

    family, architecture = "m3p", "TransformerModel"

    def __init__(
        self,
        config: JointConfig,
        feature_width: int,
        head: MatchHead | None,
        *,
        is_normalising: bool,
    ) -> None:
        """`is_normalising` says that features and boxes get unit length, as the authors' do."""
        super().__init__(config, head)
        width, epsilon = config.width, config.norm_epsilon
        self.feature_width, self.is_normalising = feature_width, is_normalising
        self.feature_project = nn.Linear(feature_width, width)
        self.box_project = nn.Linear(_BOX.width, width)
        self.image_norm = nn.LayerNorm(width, epsilon)
        self.embedding_norm = nn.LayerNorm(width, epsilon)

    def text_position_count(self, region_count: int) -> int:
        return super().text_position_count(region_count) - region_count

    def embedded(
        self, token_ids: Tensor, text_mask: Tensor, regions_BRD: Tensor, region_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the first layer's input [B, L, W] with its mask [B, L].

        A text's first position follows the last region that counts, as without padding.
        """
        features_BRF = regions_BRD[:, :, : self.feature_width]
        boxes_BR5 = regions_BRD[:, :, self.feature_width :]
        if self.is_normalising:
            features_BRF, boxes_BR5 = (
                F.normalize(features_BRF, dim=-1),
                F.normalize(boxes_BR5, dim=-1),
            )
        image_BRW = self.image_norm(
            self.feature_project(features_BRF) + self.box_project(boxes_BR5)
        )
        image_BRW = image_BRW + self.position.weight[: regions_BRD.shape[1]]
        numbers_BT = region_mask.sum(1, keepdim=True) + torch.cumsum(
            torch.ones_like(token_ids), dim=1
        )
        text_BTW = self.word(token_ids) + self.position(numbers_BT - 1)
        both_BLW = self.embedding_norm(torch.cat([image_BRW, text_BTW], 1))
        return both_BLW, torch.cat([region_mask, text_mask], 1)


def read_m3p(folder: PublishedFolder, mmt: OfMmt | None = None) -> PublishedModel:
    """Returns the model of a folder; raises PublishedCheckpointInvalid naming what is wrong.

    MMT leaves features as they are.
    """
    weights = present_names(_weights(folder))
    config, feature_width = _shape(folder, weights)
    taken = take_head(folder, weights, mmt, ("seq_relationship",), "pooled_layer.dense")
    model = M3pEncoder(config, feature_width, taken.head, is_normalising=mmt is None)
    sources = {
        "word.weight": (_WORDS,),
        "position.weight": (_POSITIONS,),
        **both_ends("embedding_norm", "layer_norm_emb"),
        **both_ends("feature_project", "image_embeddings.image_embeddings"),
        **both_ends("box_project", "image_embeddings.image_location_embeddings"),
        **both_ends("image_norm", "image_embeddings.LayerNorm"),
        **_layers(config.layer_count),
    }
    filled = taken.fill(folder, model, sources, _OTHER_TASKS)
    rules = RegionRules(feature_width=feature_width, box_numbers=_BOX, max_regions=MAX_REGIONS)
    return region_model(folder, model, rules, filled, taken.notes, mmt)


def m3p_weights_name(folder: PublishedFolder) -> str | None:
    """Returns the name of the folder's file of weights; None if there is not exactly one."""
    if folder.has(WEIGHTS_NAME):
        return WEIGHTS_NAME
    if folder.has(TRAINED_WEIGHTS):  # by its names, since every kind of model may have this file
        is_m3p = _FEATURES in folder.declared_weights([TRAINED_WEIGHTS])
        return TRAINED_WEIGHTS if is_m3p else None
    names = [path.name for end in ("*.pth", "*.pt") for path in folder.path.glob(end)]
    return names[0] if len(names) == 1 else None


def _weights(folder: PublishedFolder) -> dict[str, Tensor]:
    name = m3p_weights_name(folder)
    if name is None:
        raise folder.refused(
            f"it has no {WEIGHTS_NAME}, nor any other single .pth or .pt; copy its weights into it"
        )
    return folder.read_weights([name])


def _shape(folder: PublishedFolder, weights: dict[str, Tensor]) -> tuple[JointConfig, int]:
    """Returns the shape and the number of features; the authors' files have no configuration."""
    with folder.reading("it is not an M3P file"):
        vocabulary_size, width = weights[_WORDS].shape
        config = JointConfig(
            vocabulary_size=vocabulary_size,
            width=width,
            layer_count=len({n.split(".")[1] for n in weights if n.startswith("attentions.")}),
            head_count=width // _HEAD_WIDTH,
            max_text_tokens=len(weights[_POSITIONS]),
            encoder="post_norm",
            feed_forward_width=len(weights["ffns.0.lin1.weight"]),
            norm_epsilon=1e-12,
            image_source="regions",
        )
        return config, weights[_FEATURES].shape[1]


def _layers(count: int) -> dict[str, tuple[str, ...]]:
    sources: dict[str, tuple[str, ...]] = {}
    for number in range(count):
        for end in ("weight", "bias"):
            sources[f"layers.{number}.query_key_value.{end}"] = tuple(
                f"attentions.{number}.{part}.{end}" for part in ("q_lin", "k_lin", "v_lin")
            )
        for own, published in _LAYER_PARTS.items():
            sources |= both_ends(f"layers.{number}.{own}", published.format(number))
    return sources
