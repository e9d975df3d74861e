"""Describes a region model that was read, with the rules of its texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tandem.modeling.config import JointConfig
from tandem.modeling.families.described import described
from tandem.modeling.families.published_model import PublishedModel, RegionJointParts
from tandem.modeling.families.region_encoder import RegionEncoder
from tandem.modeling.families.region_head import OfMmt
from tandem.modeling.families.tokenizer_class import check_added_tokens, check_class
from tandem.modeling.published.files import TOKENIZER, read_tokenizer
from tandem.modeling.published.folder import PublishedFolder
from tandem.modeling.published.shape import SERVED_BERT, bert_config
from tandem.pictures.image_rules import RegionRules
from tandem.texts.special_tokens import special_tokens
from tandem.texts.text_rules import TextRules, text_length_buckets

_TOKENIZER_FILES: Final = (
    TOKENIZER,
    "vocab.txt",
    "tokenizer_config.json",
    "sentencepiece.bpe.model",
)
_SPECIAL_COUNT: Final = 2
# So that a caption of 60 tokens is not padded to 512.
_LONGER_TEXTS: Final = (96, 192)


@dataclass(frozen=True, slots=True, eq=False)
class RegionModelParts:
    """Holds what a family's file made of a folder."""

    family: str
    architecture: str
    """The authors' class."""
    model: RegionEncoder
    config: JointConfig
    regions: RegionRules
    max_text_tokens: int | None = None
    """With special tokens, as the authors cut; None where they cut none: as have positions."""


def region_model(
    folder: PublishedFolder,
    parts: RegionModelParts,
    notes: Sequence[str] = (),
    mmt: OfMmt | None = None,
) -> PublishedModel:
    """Returns the model with the folder's tokenizer; refuses that of another model."""
    for name in _TOKENIZER_FILES:
        if folder.has(name):
            folder.file(name)
    tokenizer = read_tokenizer(folder.path, parts.config.vocabulary_size)
    if folder.has(TOKENIZER):
        check_added_tokens(folder, tokenizer)
        check_class(folder, tokenizer)
    special = special_tokens(tokenizer)
    regions, max_tokens = parts.regions, parts.max_text_tokens
    if mmt is not None and mmt.region_count is not None:
        regions = replace(regions, max_regions=mmt.region_count)
    if mmt is not None and mmt.text_length is not None:
        max_tokens = mmt.text_length + _SPECIAL_COUNT
    position_count = parts.model.text_position_count(regions.max_regions)
    max_tokens = min(max_tokens or position_count, position_count)
    if max_tokens <= _SPECIAL_COUNT:
        raise folder.unserved(
            f"it has {parts.config.max_text_tokens:,} positions, which leaves none for a text next "
            f"to {regions.max_regions} regions"
        )
    longer = (length for length in _LONGER_TEXTS if 2 * length < max_tokens)
    return described(
        folder,
        parts.family,
        parts.architecture,
        {TOKENIZER: tokenizer},
        parts.model,
        region_joint=RegionJointParts(
            joint=parts.model,
            text=TextRules(
                tokenizer=TOKENIZER,
                max_tokens=max_tokens,
                lengths=tuple(sorted({*text_length_buckets(max_tokens), *longer})),
                vocabulary_size=parts.config.vocabulary_size,
                pad_id=special.pad_id,
            ),
            regions=regions,
            embedding_dim=parts.config.width,
            cls_id=special.cls_id,
            has_pairs=parts.model.head is not None,
        ),
        notes=tuple(notes),
    )


def region_config(folder: PublishedFolder, fields: Mapping[str, Any]) -> JointConfig:
    """Returns the shape that BERT's config.json gives; refuses one that is not BERT's."""
    with folder.reading("config.json is not BERT's"):
        folder.check_served(fields, SERVED_BERT)
        return bert_config(fields, image_source="regions")
