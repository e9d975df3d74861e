"""A checkpoint into the two models that Triton loads. TorchScript appears in this file alone.

What is written is checked first: the exporter refuses unless the saved files, loaded again, give
what the eager model gives, for every kind of input, batch size and length that is served.
"""

import json
import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor, nn

from tandem.model_io.config_pbtxt import joint_model_configs
from tandem.model_io.manifest import (
    FORMAT_VERSION,
    IMAGE_BACKBONE,
    JOINT_ENCODER,
    MANIFEST_NAME,
    Manifest,
    config_file,
    model_file,
    read_manifest,
    tokenizer_file,
)
from tandem.modeling.checkpoint import Checkpoint, load_checkpoint

# Half of the demo's texts have 11 tokens or fewer, all 26 or fewer. The model's own limit is the
# last bucket.
_SHORT_TEXT_LENGTHS = (16, 32)
# float32 on one machine: only the order of additions differs between batch sizes.
_TOLERANCE = 1e-5


class ExportMismatch(Exception):
    """The exported model does not give what the checkpoint gives; nothing was written."""


def export_model(checkpoint_folder: Path, repository: Path) -> Manifest:
    """Writes model files, config.pbtxt and manifest.json into `repository`; returns the manifest.

    Raises ExportMismatch unless exported and eager model agree within 1e-5, and ValueError for a
    folder that is no checkpoint. The manifest is written last: a repository whose export broke off
    has none, and no service starts on it.
    """
    checkpoint = load_checkpoint(checkpoint_folder)
    # Beside the repository, not in it: Triton takes every folder inside for a model.
    staging = repository.with_name(f".{repository.name}.staging")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        backbone_file = staging / f"{IMAGE_BACKBONE}.pt"
        encoder_file = staging / f"{JOINT_ENCODER}.pt"
        _export(checkpoint.model.image_backbone, (_pixels(checkpoint, 2),), backbone_file)
        _export(checkpoint.model.joint_encoder, _pair(checkpoint, 2, 7, 5), encoder_file)
        _check(checkpoint, backbone_file, encoder_file)
        return _install(checkpoint, repository, backbone_file, encoder_file)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def export_if_stale(checkpoint_folder: Path, repository: Path) -> Manifest:
    """Exports unless `repository` already holds, whole, what this exporter makes of it."""
    checkpoint = load_checkpoint(checkpoint_folder)
    try:
        manifest = read_manifest(repository)
        manifest.verify(repository)
        is_fresh = manifest == _manifest(checkpoint, dict(manifest.models)) and all(
            config_file(repository, name).read_text(encoding="utf-8") == config_text
            for name, config_text in joint_model_configs(manifest).items()
        )
    except (OSError, ValueError):
        is_fresh = False
    return manifest if is_fresh else export_model(checkpoint_folder, repository)


def _export(module: nn.Module, example: tuple[Tensor, ...], path: Path) -> None:
    with torch.inference_mode():
        traced = torch.jit.trace(module, example, check_trace=False)
    torch.jit.save(traced, str(path))


def _check(checkpoint: Checkpoint, backbone_file: Path, encoder_file: Path) -> None:
    backbone = torch.jit.load(str(backbone_file))
    encoder = torch.jit.load(str(encoder_file))
    model = checkpoint.model
    with torch.inference_mode():
        for batch in (1, 3):
            pixels = _pixels(checkpoint, batch)
            _compare(IMAGE_BACKBONE, backbone(pixels), model.image_backbone(pixels))
        for inputs in _served_inputs(checkpoint):
            for exported, eager in zip(encoder(*inputs), model.joint_encoder(*inputs), strict=True):
                _compare(JOINT_ENCODER, exported, eager)


def _compare(name: str, exported: Tensor, eager: Tensor) -> None:
    if exported.shape != eager.shape or exported.dtype != eager.dtype:
        raise ExportMismatch(
            f"{name}: exported {list(exported.shape)} {exported.dtype}, "
            f"eager {list(eager.shape)} {eager.dtype}"
        )
    difference = (exported.double() - eager.double()).abs().max().item()
    if not difference <= _TOLERANCE:  # also true of NaN
        raise ExportMismatch(f"{name}: exported and eager differ by {difference:.2e}")


def _served_inputs(checkpoint: Checkpoint) -> Iterator[tuple[Tensor, ...]]:
    """Yields text alone, image alone and pairs, in sizes other than the traced ones."""
    image_token_count = checkpoint.model.config.image_token_count
    for batch in (1, 5):
        for text_length in _text_length_buckets(checkpoint):
            ids, text_mask, tokens, image_mask = _pair(checkpoint, batch, text_length, 1)
            yield ids, text_mask, torch.zeros_like(tokens), torch.zeros_like(image_mask)
            yield _pair(checkpoint, batch, text_length, image_token_count)
        yield _pair(checkpoint, batch, 1, image_token_count)


def _text_length_buckets(checkpoint: Checkpoint) -> tuple[int, ...]:
    limit = checkpoint.model.config.max_text_tokens
    return (*(length for length in _SHORT_TEXT_LENGTHS if length < limit), limit)


def _pixels(checkpoint: Checkpoint, batch: int) -> Tensor:
    size = checkpoint.model.config.image_size
    generator = torch.Generator().manual_seed(batch)
    return torch.randint(0, 256, (batch, size, size, 3), dtype=torch.uint8, generator=generator)


def _pair(
    checkpoint: Checkpoint, batch: int, text_length: int, image_length: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns random inputs; each text after the first is padded from its middle on."""
    config = checkpoint.model.config
    generator = torch.Generator().manual_seed(batch * 1000 + text_length)
    ids = torch.randint(
        0, config.vocabulary_size, (batch, text_length), dtype=torch.int64, generator=generator
    )
    text_mask = torch.ones_like(ids)
    text_mask[1:, max(1, text_length // 2) :] = 0
    tokens = torch.randn(batch, image_length, config.width, generator=generator).half()
    return ids, text_mask, tokens, torch.ones(batch, image_length, dtype=torch.int64)


def _install(
    checkpoint: Checkpoint, repository: Path, backbone_file: Path, encoder_file: Path
) -> Manifest:
    files = {IMAGE_BACKBONE: backbone_file, JOINT_ENCODER: encoder_file}
    tokenizer_text = checkpoint.tokenizer.to_str()
    manifest = _manifest(checkpoint, {name: _sha256(path) for name, path in files.items()})
    manifest_path = repository / JOINT_ENCODER / MANIFEST_NAME
    manifest_path.unlink(missing_ok=True)
    for name, config_text in joint_model_configs(manifest).items():
        model_file(repository, name).parent.mkdir(parents=True, exist_ok=True)
        files[name].replace(model_file(repository, name))
        config_file(repository, name).write_text(config_text, encoding="utf-8")
    tokenizer_file(repository).write_text(tokenizer_text, encoding="utf-8")
    manifest.write(manifest_path)
    return manifest


def _manifest(checkpoint: Checkpoint, model_sha256: dict[str, str]) -> Manifest:
    config = checkpoint.model.config
    token_ids = checkpoint.tokenizer.get_vocab()
    tokenizer_sha256 = sha256(checkpoint.tokenizer.to_str().encode()).hexdigest()
    return Manifest(
        format_version=FORMAT_VERSION,
        family="joint",
        fingerprint=_fingerprint(checkpoint),
        precision="fp32",
        embedding_dim=config.width,
        token_width=config.width,
        image_token_count=config.image_token_count,
        image_size=config.image_size,
        max_text_tokens=config.max_text_tokens,
        text_length_buckets=_text_length_buckets(checkpoint),
        vocabulary_size=config.vocabulary_size,
        cls_id=token_ids["[CLS]"],
        sep_id=token_ids["[SEP]"],
        pad_id=token_ids["[PAD]"],
        models=model_sha256,
        tokenizer_sha256=tokenizer_sha256,
        checkpoint={"weights_sha256": checkpoint.weights_sha256},
    )


def _fingerprint(checkpoint: Checkpoint) -> str:
    """Names what turns content into embedding and tokens: weights, shape, tokenizer, precision.

    Not the exported files, whose bytes change from one export to the next.
    """
    parts = {
        "format": FORMAT_VERSION,
        "weights": checkpoint.weights_sha256,
        "config": checkpoint.model.config.to_dict(),
        "tokenizer": sha256(checkpoint.tokenizer.to_str().encode()).hexdigest(),
        "precision": "fp32",
    }
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _sha256(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
