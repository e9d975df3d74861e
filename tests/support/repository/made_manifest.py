"""Manifests of models that exist nowhere else: joint ones by default, any field replaced."""

from dataclasses import replace
from typing import Any

from tandem.model_io.pictures.image_rules import ImageRules
from tandem.model_io.repository.manifest import (
    FORMAT_VERSION,
    IMAGE_BACKBONE,
    JOINT_ENCODER,
    Manifest,
)
from tandem.model_io.repository.served_functions import (
    PAIR_ROLES,
    Role,
    ServedFunctions,
    TritonModel,
)
from tandem.model_io.texts.text_rules import TextRules
from tandem.model_io.texts.visible_text import VISIBLE_TEXT_VERSION


def text_rules(max_tokens: int = 16, **changed: Any) -> TextRules:
    """Rules of 100 words and one length, with some fields replaced."""
    rules = TextRules(
        tokenizer="tokenizer.json",
        max_tokens=max_tokens,
        lengths=(max_tokens,),
        vocabulary_size=100,
        pad_id=0,
    )
    return replace(rules, **changed)


def made_manifest(**changed: Any) -> Manifest:
    """A joint model's manifest, with some fields replaced."""
    text, image = text_rules(), ImageRules(size=8)
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        family="joint",
        fingerprint="made-up",
        precision="fp32",
        embedding_dim=8,
        token_width=1,
        image_token_count=1,
        text=text,
        image=image,
        pair_text=text,
        pair_image=image,
        cls_id=2,
        text_version=VISIBLE_TEXT_VERSION,
        functions=ServedFunctions(
            embed_text=JOINT_ENCODER,
            embed_image=(IMAGE_BACKBONE, JOINT_ENCODER),
            image_tokens=IMAGE_BACKBONE,
            score_pair=JOINT_ENCODER,
        ),
        models={
            IMAGE_BACKBONE: TritonModel(
                sha256="", inputs=(Role.PIXELS,), outputs=(Role.IMAGE_TOKENS,)
            ),
            JOINT_ENCODER: TritonModel(
                sha256="", inputs=PAIR_ROLES, outputs=(Role.EMBEDDING, Role.MATCH_LOGIT)
            ),
        },
        tokenizers={"tokenizer.json": ""},
        checkpoint={},
    )
    return replace(manifest, **changed)
