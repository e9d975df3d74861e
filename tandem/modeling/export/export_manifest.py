"""Builds an export's manifest from the checkpoint's small files, without weights or torch."""

import json
from collections.abc import Mapping
from hashlib import sha256

from tandem.model_io.manifest import FORMAT_VERSION, Manifest
from tandem.model_io.precision import Precision
from tandem.model_io.special_tokens import special_tokens
from tandem.model_io.visible_text import VISIBLE_TEXT_VERSION
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.config import JointConfig

# Each is at most 1.5 times the one before, so padding averages at most a fifth. Half of the demo's
# texts have at most 11 tokens, all have at most 26. The model's own limit is the last bucket.
_SHORT_TEXT_LENGTHS = (8, 12, 16, 24, 32, 48)


def export_manifest(
    files: CheckpointFiles, precision: Precision, model_sha256: Mapping[str, str]
) -> Manifest:
    """Returns the manifest of a checkpoint's export whose model files have these digests."""
    config = files.config
    special = special_tokens(files.tokenizer)
    return Manifest(
        format_version=FORMAT_VERSION,
        family=_family(config),
        fingerprint=_fingerprint(files, precision),
        precision=precision,
        embedding_dim=config.embedding_dim,
        token_width=config.token_width,
        image_token_count=config.image_token_count,
        image_size=config.image_size,
        max_text_tokens=config.max_text_tokens,
        text_length_buckets=text_length_buckets(config.max_text_tokens),
        vocabulary_size=config.vocabulary_size,
        cls_id=special.cls_id,
        sep_id=special.sep_id,
        pad_id=special.pad_id,
        text_version=VISIBLE_TEXT_VERSION,
        models=dict(model_sha256),
        tokenizer_sha256=_tokenizer_sha256(files),
        checkpoint={"weights_sha256": files.weights_sha256},
    )


def text_length_buckets(max_text_tokens: int) -> tuple[int, ...]:
    """Returns the lengths that texts are padded to, ascending."""
    shorter = (length for length in _SHORT_TEXT_LENGTHS if length < max_text_tokens)
    return (*shorter, max_text_tokens)


def _family(config: JointConfig) -> str:
    if config.has_two_towers:
        return "two_towers"
    return "separate" if config.has_two_encoders else "joint"


def _fingerprint(files: CheckpointFiles, precision: Precision) -> str:
    """Returns a digest of what turns content into embedding and tokens.

    That is weights, shape, tokenizer, precision, and the version of text normalisation. The
    exported files are excluded, because their bytes change with each export.
    """
    parts = {
        "format": FORMAT_VERSION,
        "weights": files.weights_sha256,
        "config": files.config.to_dict(),
        "tokenizer": _tokenizer_sha256(files),
        "text": VISIBLE_TEXT_VERSION,
        "precision": precision,
    }
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _tokenizer_sha256(files: CheckpointFiles) -> str:
    return sha256(files.tokenizer.to_str().encode()).hexdigest()
