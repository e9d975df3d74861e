"""Describes a region model that was read, with the rules of its texts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tandem.model_io.pictures.image_rules import RegionRules
from tandem.model_io.texts.special_tokens import special_tokens
from tandem.model_io.texts.text_rules import TextRules, text_length_buckets
from tandem.modeling.config import JointConfig
from tandem.modeling.families.described import described
from tandem.modeling.families.published_model import PublishedModel, RegionJointParts
from tandem.modeling.families.regions.region_encoder import RegionEncoder
from tandem.modeling.families.regions.region_head import FilledWeights, OfMmt
from tandem.modeling.families.text_rules import check_tokens, library_tokenizer
from tandem.modeling.published.files import TOKENIZER, TOKENIZER_CONFIG, read_tokenizer
from tandem.modeling.published.folder import PublishedFolder
from tandem.modeling.published.weights import SERVED_BERT, bert_config, bert_layers, both_ends

_TOKENIZER_FILES: Final = (
    TOKENIZER,
    "vocab.txt",
    TOKENIZER_CONFIG,
    "sentencepiece.bpe.model",
)
_SPECIAL_COUNT: Final = 2
# So that a caption of 60 tokens is not padded to 512.
_LONGER_TEXTS: Final = (96, 192)


def region_model(
    folder: PublishedFolder,
    model: RegionEncoder,
    regions: RegionRules,
    filled: FilledWeights,
    notes: Sequence[str] = (),
    mmt: OfMmt | None = None,
    max_tokens: int | None = None,
) -> PublishedModel:
    """Returns the model with the folder's tokenizer; refuses that of another model.

    A folder of MMT-Retrieval is only read, so its model does not give its `filled` weights.
    `max_tokens` is where the authors cut texts, with special tokens; None where they cut none.
    """
    for name in _TOKENIZER_FILES:
        if folder.has(name):
            folder.file(name)
    vocabulary_size = model.word.num_embeddings
    tokenizer = read_tokenizer(folder.path, vocabulary_size)
    if folder.has(TOKENIZER):
        check_tokens(folder, tokenizer, library_tokenizer(folder))
    special = special_tokens(tokenizer)
    if mmt is not None and mmt.region_count is not None:
        regions = replace(regions, max_regions=mmt.region_count)
    if mmt is not None and mmt.text_length is not None:
        max_tokens = mmt.text_length + _SPECIAL_COUNT
    position_count = model.text_position_count(regions.max_regions)
    max_tokens = min(max_tokens or position_count, position_count)
    if max_tokens <= _SPECIAL_COUNT:
        raise folder.unserved(
            f"it has {model.position.num_embeddings:,} positions, which leaves none for a text "
            f"next to {regions.max_regions} regions"
        )
    longer = (length for length in _LONGER_TEXTS if 2 * length < max_tokens)
    text = TextRules(
        tokenizer=TOKENIZER,
        max_tokens=max_tokens,
        lengths=tuple(sorted({*text_length_buckets(max_tokens), *longer})),
        vocabulary_size=vocabulary_size,
        pad_id=special.pad_id,
    )
    parts = RegionJointParts(
        joint=model,
        text=text,
        regions=regions,
        embedding_dim=model.word.embedding_dim,
        cls_id=special.cls_id,
        has_pairs=model.head is not None,
    )
    read = described(
        folder,
        model.family,
        model.architecture,
        tokenizer,
        model,
        region_joint=parts,
        notes=tuple(notes),
    )
    weights = filled.present if mmt is None else None
    return replace(read, weights=weights, unused=filled.unused)


def bert_sources(layers: int, **parts: str) -> dict[str, tuple[str, ...]]:
    """Returns the sources of words, positions, types and layers, and of other parts by name."""
    sources: dict[str, tuple[str, ...]] = bert_layers(range(layers))
    for table in ("word", "position", "token_type"):
        sources[f"{table}.weight"] = (f"embeddings.{table}_embeddings.weight",)
    for own, published in parts.items():
        sources |= both_ends(own, published)
    return sources


def region_config(folder: PublishedFolder, fields: Mapping[str, Any]) -> JointConfig:
    """Returns the shape that BERT's config.json gives; refuses one that is not BERT's."""
    with folder.reading("config.json is not BERT's"):
        folder.check_served(fields, SERVED_BERT)
        return bert_config(fields, image_source="regions")
