"""Builds an export's manifest from the checkpoint's small files, without weights or torch."""

import json
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256

from tandem.model_io.repository.manifest import (
    FORMAT_VERSION,
    IMAGE_BACKBONE,
    JOINT_ENCODER,
    TOKENIZER_NAME,
    Manifest,
)
from tandem.model_io.repository.precision import Precision
from tandem.model_io.repository.served_functions import (
    PAIR_ROLES,
    Role,
    ServedFunctions,
    TritonModel,
)
from tandem.model_io.texts.special_tokens import special_tokens
from tandem.model_io.texts.text_rules import TextRules, text_length_buckets
from tandem.model_io.texts.visible_text import VISIBLE_TEXT_VERSION
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.config import JointConfig

# The format that fixed how a checkpoint of ours reads pictures and texts (`image_rules`,
# `own_text_rules`): as long as those stay, so do the fingerprints, and the indexes made with them.
_FINGERPRINT_FORMAT = 2
_FUNCTIONS = ServedFunctions(
    embed_text=JOINT_ENCODER,
    embed_image=(IMAGE_BACKBONE, JOINT_ENCODER),
    image_tokens=IMAGE_BACKBONE,
    score_pair=JOINT_ENCODER,
)
REGION_FUNCTIONS = ServedFunctions(
    embed_text=JOINT_ENCODER, embed_image=(JOINT_ENCODER,), score_pair=JOINT_ENCODER
)
"""Of a joint encoder whose image tokens are a detector's regions."""


def export_manifest(
    files: CheckpointFiles, precision: Precision, model_sha256: Mapping[str, str]
) -> Manifest:
    """Returns the manifest of a checkpoint's export whose model.pt have these digests."""
    config = files.config
    regions, text = config.region_rules, own_text_rules(files)
    image = config.image_rules if regions is None else None
    models = {
        JOINT_ENCODER: TritonModel(
            sha256=model_sha256.get(JOINT_ENCODER, ""),
            inputs=PAIR_ROLES,
            outputs=(Role.EMBEDDING, Role.MATCH_LOGIT),
        )
    }
    if regions is None:
        models[IMAGE_BACKBONE] = TritonModel(
            sha256=model_sha256.get(IMAGE_BACKBONE, ""),
            inputs=(Role.PIXELS,),
            outputs=(Role.IMAGE_TOKENS,),
        )
    return Manifest(
        format_version=FORMAT_VERSION,
        family=_family(config),
        fingerprint=checkpoint_fingerprint(files, precision),
        precision=precision,
        embedding_dim=config.embedding_dim,
        token_width=config.token_width,
        image_token_count=config.image_token_count,
        text=text,
        image=image,
        pair_text=text,
        pair_image=image,
        regions=regions,
        cls_id=special_tokens(files.tokenizer).cls_id,
        text_version=VISIBLE_TEXT_VERSION,
        functions=_FUNCTIONS if regions is None else REGION_FUNCTIONS,
        models=models,
        tokenizers={TOKENIZER_NAME: _tokenizer_sha256(files)},
        checkpoint={"weights_sha256": files.weights_sha256},
    )


def is_export_of(manifest: Manifest, files: CheckpointFiles, precision: Precision) -> bool:
    """Returns whether a manifest is of the checkpoint's export, whatever the files' digests."""
    expected = export_manifest(files, precision, {})
    return replace(manifest, models=_without_digests(manifest)) == replace(
        expected, models=_without_digests(expected)
    )


def own_text_rules(files: CheckpointFiles) -> TextRules:
    config = files.config
    return TextRules(
        tokenizer=TOKENIZER_NAME,
        max_tokens=config.max_text_tokens,
        lengths=text_length_buckets(config.max_text_tokens),
        vocabulary_size=config.vocabulary_size,
        pad_id=special_tokens(files.tokenizer).pad_id,
    )


def _family(config: JointConfig) -> str:
    if config.has_two_towers:
        return "two_towers"
    return "separate" if config.has_two_encoders else "joint"


def checkpoint_fingerprint(files: CheckpointFiles, precision: Precision) -> str:
    """Returns a digest of what turns content into embedding and tokens.

    That is weights, shape, tokenizer, precision, the version of text normalisation, and by the
    format the rules for texts and pictures. The exported files are excluded, because their bytes
    change with each export.
    """
    parts = {
        "format": _FINGERPRINT_FORMAT,
        "weights": files.weights_sha256,
        "config": files.config.to_dict(),
        "tokenizer": _tokenizer_sha256(files),
        "text": VISIBLE_TEXT_VERSION,
        "precision": precision,
    }
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _without_digests(manifest: Manifest) -> dict[str, TritonModel]:
    return {
        name: replace(model, sha256="", pt2_sha256=None) for name, model in manifest.models.items()
    }


def _tokenizer_sha256(files: CheckpointFiles) -> str:
    return sha256(files.tokenizer.to_str().encode()).hexdigest()
