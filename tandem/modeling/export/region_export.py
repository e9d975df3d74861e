"""Exports published models of a detector's regions: one joint encoder for all three functions."""

import json
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path

from tandem.model_io.manifest import FORMAT_VERSION, JOINT_ENCODER, Manifest
from tandem.model_io.precision import Precision
from tandem.model_io.served_functions import PAIR_ROLES, Role, TritonModel
from tandem.model_io.visible_text import VISIBLE_TEXT_VERSION
from tandem.modeling.export.export_manifest import REGION_FUNCTIONS
from tandem.modeling.export.installation import install_model
from tandem.modeling.export.lowered import lowered_part
from tandem.modeling.families.published_model import PublishedModel, RegionJointParts

_FINGERPRINT_FORMAT = 3


def export_region_model(
    model: PublishedModel,
    repository: Path,
    precision: Precision = Precision.FP32,
    *,
    with_pt2: bool = False,
) -> Manifest:
    """Writes the model into `repository` in the place of what is there.

    Returns the manifest. Raises ValueError for a model that reads pixels, and errors as
    install_model.
    """
    parts = model.region_joint
    if parts is None:
        raise ValueError(f"{model.family} reads pixels and no regions")
    return install_model(
        {JOINT_ENCODER: lowered_part(parts.joint, precision)},
        region_manifest(model, parts, precision),
        model.tokenizers,
        repository,
        with_pt2=with_pt2,
    )


def region_manifest(
    model: PublishedModel, parts: RegionJointParts, precision: Precision
) -> Manifest:
    """Returns the manifest of the model's export, without the digest of its file."""
    functions = REGION_FUNCTIONS
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        family=model.family,
        fingerprint="",
        precision=precision,
        embedding_dim=parts.embedding_dim,
        image_token_count=parts.regions.max_regions,
        token_width=parts.regions.vector_width,
        text=parts.text,
        image=None,
        pair_text=parts.text if parts.has_pairs else None,
        pair_image=None,
        cls_id=parts.cls_id,
        text_version=VISIBLE_TEXT_VERSION,
        functions=functions if parts.has_pairs else replace(functions, score_pair=None),
        models={
            JOINT_ENCODER: TritonModel(
                sha256="", inputs=PAIR_ROLES, outputs=(Role.EMBEDDING, Role.MATCH_LOGIT)
            )
        },
        regions=parts.regions,
        default_fusion=model.default_fusion,
        tokenizers={
            name: sha256(tokenizer.to_str().encode()).hexdigest()
            for name, tokenizer in model.tokenizers.items()
        },
        checkpoint={"family": model.family, "files_sha256": dict(model.files_sha256)},
        licence=model.licence,
    )
    manifest = replace(manifest, fingerprint=_fingerprint(manifest))
    manifest.check()
    return manifest


def _fingerprint(manifest: Manifest) -> str:
    """Returns a digest of what turns content into embedding and tokens: files and rules."""
    assert manifest.regions is not None, "it is a model of regions"
    parts = {
        "format": _FINGERPRINT_FORMAT,
        "checkpoint": dict(manifest.checkpoint),
        "text_rules": asdict(manifest.text),
        "regions": asdict(manifest.regions),
        "tokenizers": dict(manifest.tokenizers),
        "text": manifest.text_version,
        "precision": manifest.precision,
    }
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
