"""Reads OSCAR, and VinVL, which has its layout (Li et al. 2020, Zhang et al. 2021).

BERT with one more linear layer: a region's 2,048 features and six numbers of its box become a
token, without position, type or norm. A folder has pytorch_model.bin, config.json and vocab.txt,
and training_args.bin, which says how many regions and tokens it was trained with.

Shapes: B batch, T text tokens, R regions, L = T + R, D numbers of a region, W width.
"""

from argparse import Namespace
from contextlib import suppress
from typing import Final

import torch
from torch import Tensor, nn
from torch.serialization import safe_globals

from tandem.model_io.pictures.image_rules import BoxNumbers, RegionRules
from tandem.modeling.config import JointConfig
from tandem.modeling.families.published_model import PublishedModel
from tandem.modeling.families.regions.region_encoder import MatchHead, RegionEncoder
from tandem.modeling.families.regions.region_head import OfMmt, take_head
from tandem.modeling.families.regions.region_model import bert_sources, region_config, region_model
from tandem.modeling.published.folder import PublishedFolder
from tandem.modeling.published.pickled_tensors import PickleRefused, read_pickled_tensors
from tandem.modeling.published.weights import present_names

# In all, as the authors count; MMT adds the two special tokens.
_MAX_TEXT_TOKENS: Final = 70
_MAX_REGIONS: Final = {"OSCAR": 50, "VinVL": 70}
_ARGUMENTS: Final = "training_args.bin"
_PRETRAINING: Final = r"cls\."
_TAGS: Final = (
    "The authors' retrieval commands add object tags to a text (--add_od_labels), which are not "
    "read here; without them the scores are not the authors'."
)


class OscarEncoder(RegionEncoder):
    """OSCAR's encoder; text comes first."""

    family, architecture = "oscar", "BertImgModel"

    def __init__(
        self,
        config: JointConfig,
        width: int,
        head: MatchHead | None,
        image_norm_epsilon: float | None,
    ) -> None:
        """`width` is that of a region's vector; there is no norm of images without an epsilon."""
        super().__init__(config, head)
        self.token_type = nn.Embedding(2, config.width)
        self.text_norm = nn.LayerNorm(config.width, config.norm_epsilon)
        self.image_project = nn.Linear(width, config.width)
        epsilon = image_norm_epsilon
        self.image_norm = nn.Identity() if epsilon is None else nn.LayerNorm(config.width, epsilon)

    def embedded(
        self, token_ids: Tensor, text_mask: Tensor, regions_BRD: Tensor, region_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        places_TW = self.position.weight[: token_ids.shape[1]] + self.token_type.weight[0]
        text_BTW = self.text_norm(self.word(token_ids) + places_TW)
        image_BRW = self.image_norm(self.image_project(regions_BRD))
        return torch.cat([text_BTW, image_BRW], 1), torch.cat([text_mask, region_mask], 1)


def read_oscar(folder: PublishedFolder, mmt: OfMmt | None = None) -> PublishedModel:
    """Returns the model of a folder; raises PublishedCheckpointInvalid naming what is wrong."""
    fields = folder.config()
    config = region_config(folder, fields)
    width = fields.get("img_feature_dim", 2054)
    epsilon = fields.get("img_layer_norm_eps", config.norm_epsilon)
    # Otherwise a code book's features.
    folder.check_served(fields, {"img_feature_type": ("faster_r-cnn", "frcnn")})
    weights = present_names(folder.read_weights(), "bert.")
    taken = take_head(folder, weights, mmt, ("classifier",), "pooler.dense")
    has_image_norm = bool(fields.get("use_img_layernorm"))
    model = OscarEncoder(config, width, taken.head, epsilon if has_image_norm else None)
    parts = {"text_norm": "embeddings.LayerNorm", "image_project": "img_embedding"}
    if has_image_norm:
        parts["image_norm"] = "LayerNorm"
    filled = taken.fill(folder, model, bert_sources(config.layer_count, **parts), _PRETRAINING)
    region_count, max_tokens = _MAX_REGIONS["OSCAR"], _MAX_TEXT_TOKENS
    notes = list(taken.notes)
    if mmt is None:
        kind = "VinVL" if has_image_norm else "OSCAR"
        region_count, max_tokens, said = _trained_with(folder, kind)
        notes += said
    rules = RegionRules(
        feature_width=width - BoxNumbers.CORNERS_SIDES.width,
        box_numbers=BoxNumbers.CORNERS_SIDES,
        max_regions=region_count,
    )
    return region_model(folder, model, rules, filled, notes, mmt, max_tokens)


def _trained_with(folder: PublishedFolder, kind: str) -> tuple[int, int, list[str]]:
    """Returns how many regions and tokens the authors' training took, and what to tell of it.

    Their evaluation takes both from training_args.bin too. torch's restricted reader makes plain
    values of it, and the argparse.Namespace that they are in.
    """
    arguments: dict[str, object] = {}
    if folder.has(_ARGUMENTS):
        with suppress(PickleRefused), safe_globals([Namespace]):
            read = read_pickled_tensors(folder.file(_ARGUMENTS))
            arguments = vars(read) if isinstance(read, Namespace) else {}
    region_count, max_tokens = map(arguments.get, ("max_img_seq_length", "max_seq_length"))
    notes = [] if arguments.get("add_od_labels") is False else [_TAGS]
    if type(max_tokens) is not int or max_tokens < 1:
        max_tokens = _MAX_TEXT_TOKENS
    if type(region_count) is int and region_count > 0:
        return region_count, max_tokens, notes
    region_count = _MAX_REGIONS[kind]
    note = (
        f"No {_ARGUMENTS} says how many regions it was trained with: the first {region_count} of a "
        f"picture count, as in the authors' retrieval commands for {kind}."
    )
    return region_count, max_tokens, [note, *notes]
