"""Defines what a family's file makes of a published folder: three functions and their rules.

Shapes: B batch, H W pixels, T text tokens, R image tokens, D token width, d dimensions.

Each function is a torch module in evaluation mode, float32, on the CPU. It can be traced and
exported with any batch size, any text length of its rules, and padded masks:

    embed_text   (token_ids int64 [B, T], text_mask int64 [B, T]) -> embedding float32 [B, d]
    embed_image  (pixels uint8 [B, H, W, 3]) -> embedding float32 [B, d]
                 or (embedding, image_tokens float16 [B, R, D]) if score_pair reads its tokens
    image_tokens (pixels uint8 [B, H, W, 3]) -> image_tokens float16 [B, R, D], where no embed_image
                 gives them
    score_pair   (token_ids int64 [B, T], text_mask int64 [B, T], image_tokens float16 [B, R, D],
                 image_mask int64 [B, R]) -> match_logit float32 [B, 1]

A joint model is one module for all three, which differ by their masks; the absent side is
one masked token, and the text of an image alone is [CLS]. Its image tokens are a detector's regions
(region_vectors.py), unchanged, so that no image backbone is needed:

    joint        (token_ids int64 [B, T], text_mask int64 [B, T], regions float16 [B, R, D],
                 region_mask int64 [B, R]) -> (embedding float32 [B, d], match_logit float32 [B, 1])

Embeddings have unit length. Rescaling, mean and standard deviation are inside the modules.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tokenizers import Tokenizer
from torch import Tensor, nn

from tandem.model_io.pictures.image_rules import PictureRules, RegionRules
from tandem.model_io.texts.text_rules import TextRules

FusionName = Literal["none", "add", "norm_add"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BiEncoderParts:
    """Holds the two towers of a bi-encoder, and how their inputs are made."""

    embed_text: nn.Module
    embed_image: nn.Module
    """Reads pixels; or a detector's regions and their mask."""
    text: TextRules
    image: PictureRules
    embedding_dim: int
    has_image_tokens: bool = False
    """Whether `embed_image` also returns the tokens that this model's `score_pair` reads."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CrossEncoderParts:
    """Holds a cross-encoder, and how its inputs are made."""

    score_pair: nn.Module
    image_tokens: nn.Module | None
    """None if the bi-encoder of the same model returns the tokens with its embedding, or if they
    are a detector's regions."""
    text: TextRules
    image: PictureRules
    image_token_count: int
    token_width: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RegionJointParts:
    """Holds one encoder of texts and a detector's regions, and how its inputs are made."""

    joint: nn.Module
    text: TextRules
    regions: RegionRules
    embedding_dim: int
    cls_id: int
    """Stands for the text of an image alone."""
    has_pairs: bool
    """Whether it has a head for pairs; otherwise its match logit is 0."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublishedModel:
    """Describes a published model of one family, ready to be exported.

    At least one of the encoders is there. A bi-encoder without a cross-encoder serves, its
    results in BE order; a cross-encoder without a bi-encoder needs one of another model.
    """

    family: str
    """As printed and stored: "clip", "siglip", "blip" …"""
    architecture: str
    """The class of transformers that reads it."""
    licence: str
    """From the model card; empty if it names none."""
    parameter_count: int
    files_sha256: dict[str, str]
    """Digest of every file that was read, by its name in the folder; without the model card."""
    tokenizers: dict[str, Tokenizer]
    """By the file names that the text rules use."""
    bi_encoder: BiEncoderParts | None
    cross_encoder: CrossEncoderParts | None
    region_joint: RegionJointParts | None = None
    """Both in one, of regions; then the other two are None."""
    default_fusion: FusionName = "none"
    """How the family's authors combine both scores: BLIP adds them."""
    notes: tuple[str, ...] = field(default=())
    """What the user should read when the model is added, one sentence each."""
    weights: Callable[[], Mapping[str, Tensor]] | None = None
    """Returns the modules' present weights under the names that the family reads; None for a
    format that is only read."""
    unused: tuple[str, ...] = ()
    """Names of the folder's weights that other tasks need, and none of the modules."""
