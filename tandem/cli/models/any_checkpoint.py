"""Loads checkpoints of either kind, of a joint model or of the zoo. It imports torch."""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, replace
from pathlib import Path

from tandem.cli.neighbours.neighbour_gallery import CorpusPart
from tandem.contract.content import TruncationPolicy
from tandem.lab.evaluation.gallery import GalleryDigest
from tandem.lab.evaluation.reports.checkpoint_origin import trained_names
from tandem.lab.zoo.checkpoint import ZooCheckpoint, is_zoo_checkpoint, load_zoo_checkpoint
from tandem.model_io.repository.precision import Precision
from tandem.model_io.texts.text import TextPreprocessor
from tandem.modeling.checkpoint import Checkpoint, load_checkpoint
from tandem.modeling.export.export_manifest import export_manifest
from tandem.modeling.export.lowered import lowered, lowered_part

AnyCheckpoint = Checkpoint | ZooCheckpoint


def load_any_checkpoint(folder: Path) -> AnyCheckpoint:
    """Returns the checkpoint of a folder, in fp32; raises ValueError for another folder."""
    return load_zoo_checkpoint(folder) if is_zoo_checkpoint(folder) else load_checkpoint(folder)


def in_precision(checkpoint: AnyCheckpoint, precision: Precision) -> AnyCheckpoint:
    """Returns the checkpoint in a precision; a network of the zoo changes in place."""
    if isinstance(checkpoint, ZooCheckpoint):
        network = checkpoint.model.network
        checkpoint.model.network = lowered_part(network, precision)
        return checkpoint
    return replace(checkpoint, model=lowered(checkpoint.model, precision))


def fingerprint_of(checkpoint: AnyCheckpoint, precision: Precision) -> str:
    """Returns a checkpoint's fingerprint as served, or the digest of a zoo network's weights."""
    if isinstance(checkpoint, ZooCheckpoint):
        return checkpoint.weights_sha256
    return export_manifest(checkpoint.files, precision, {}).fingerprint


def texts_of(
    checkpoint: AnyCheckpoint, policy: TruncationPolicy = TruncationPolicy.ERROR
) -> TextPreprocessor:
    """Returns the preprocessor of the checkpoint's texts."""
    limit = checkpoint.model.config.max_text_tokens
    return TextPreprocessor(checkpoint.tokenizer, limit, policy=policy)


def check_embeds(folder: Path, checkpoint: AnyCheckpoint) -> None:
    """Raises ValueError for a model that only scores pairs, which finds nothing by itself."""
    if isinstance(checkpoint, ZooCheckpoint) and not checkpoint.model.network.embeds:
        raise ValueError(
            f"{folder} scores pairs and embeds nothing: name a checkpoint that retrieves for it, "
            "--retriever FOLDER"
        )


def trained_on(
    checkpoints: Iterable[AnyCheckpoint],
    digest: GalleryDigest,
    part: CorpusPart,
    otherwise: str,
    *,
    allows_trained: bool,
) -> Sequence[str] | None:
    """Returns the asking pictures that any checkpoint was trained on; None if one records nothing.

    `part` is for scenes, which have no files to recognise. Raises ValueError if any picture
    was trained on, unless `allows_trained`; its message says what to do `otherwise`.
    """
    names: dict[str, None] = {}
    is_recorded = True
    for each in checkpoints:
        trained = trained_names(each.trained_pictures, each.training, digest, *astuple(part))
        is_recorded = is_recorded and trained is not None
        names |= dict.fromkeys(trained or ())
    if names and not allows_trained:
        raise ValueError(
            f"{len(names):,} of {len(digest.pictures):,} pictures were trained on, "
            f"{next(iter(names))} first; {otherwise}, or give --allow-trained"
        )
    return list(names) if is_recorded else None
