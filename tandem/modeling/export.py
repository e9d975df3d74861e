"""A checkpoint into the two models that Triton loads. TorchScript appears in this file alone.

What is written is checked first: the exporter refuses unless the saved files, loaded again, give
what the eager model gives, for every kind of input, batch size and length that is served.
"""

import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor, nn

from tandem.model_io.config_pbtxt import joint_model_configs
from tandem.model_io.manifest import (
    IMAGE_BACKBONE,
    JOINT_ENCODER,
    MANIFEST_NAME,
    Manifest,
    config_file,
    model_file,
    tokenizer_file,
)
from tandem.model_io.precision import Precision
from tandem.modeling.checkpoint import Checkpoint, load_checkpoint
from tandem.modeling.config import JointConfig
from tandem.modeling.export_manifest import export_manifest, text_length_buckets
from tandem.modeling.image_tokens import NoPixels
from tandem.modeling.joint_model import JointModel
from tandem.modeling.lowered import lowered

# Both run on this machine, on the same inputs. In fp32 the order of additions alone may differ; in
# fewer bits such a difference can tip a value over to its neighbour.
_TOLERANCES = {
    Precision.FP32: 1e-5,
    Precision.BF16: 1e-3,
    Precision.FP16: 1e-3,
    Precision.INT8: 1e-3,
}


class ExportMismatch(Exception):
    """The exported model does not give what the checkpoint gives; nothing was written."""


def export_model(checkpoint_folder: Path, repository: Path, precision: Precision) -> Manifest:
    """Writes model files, config.pbtxt and manifest.json into `repository`; returns the manifest.

    Raises ExportMismatch unless exported and eager model agree within 1e-5 (fp32) or 1e-3, and
    ValueError for a folder that is no checkpoint or one that reads no pixels. The manifest is
    written last: a repository whose export broke off has none, and no service starts on it.
    """
    checkpoint = load_checkpoint(checkpoint_folder)
    if isinstance(checkpoint.model.image_backbone, NoPixels):
        raise ValueError(
            f"{checkpoint_folder} reads a detector's regions, which Triton has no pixels to make "
            "of; measure it with tandem evaluate --checkpoint --regions"
        )
    model = lowered(checkpoint.model, precision)
    # Beside the repository, not in it: Triton takes every folder inside for a model.
    staging = repository.with_name(f".{repository.name}.staging")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        backbone_file = staging / f"{IMAGE_BACKBONE}.pt"
        encoder_file = staging / f"{JOINT_ENCODER}.pt"
        _export(model.image_backbone, (_pixels(model.config, 2),), backbone_file)
        _export(model.joint_encoder, _pair(model.config, 2, 7, 5), encoder_file)
        _check(model, backbone_file, encoder_file, _TOLERANCES[precision])
        return _install(checkpoint, precision, repository, backbone_file, encoder_file)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _export(module: nn.Module, example: tuple[Tensor, ...], path: Path) -> None:
    with torch.inference_mode():
        traced = torch.jit.trace(module, example, check_trace=False)
    torch.jit.save(traced, str(path))


def _check(model: JointModel, backbone_file: Path, encoder_file: Path, tolerance: float) -> None:
    backbone = torch.jit.load(str(backbone_file))
    encoder = torch.jit.load(str(encoder_file))
    with torch.inference_mode():
        for batch in (1, 3):
            pixels = _pixels(model.config, batch)
            _compare(IMAGE_BACKBONE, backbone(pixels), model.image_backbone(pixels), tolerance)
        for inputs in _served_inputs(model.config):
            for exported, eager in zip(encoder(*inputs), model.joint_encoder(*inputs), strict=True):
                _compare(JOINT_ENCODER, exported, eager, tolerance)


def _compare(name: str, exported: Tensor, eager: Tensor, tolerance: float) -> None:
    if exported.shape != eager.shape or exported.dtype != eager.dtype:
        raise ExportMismatch(
            f"{name}: exported {list(exported.shape)} {exported.dtype}, "
            f"eager {list(eager.shape)} {eager.dtype}"
        )
    difference = (exported.double() - eager.double()).abs().max().item()
    if not difference <= tolerance:  # also true of NaN
        raise ExportMismatch(f"{name}: exported and eager differ by {difference:.2e}")


def _served_inputs(config: JointConfig) -> Iterator[tuple[Tensor, ...]]:
    """Yields text alone, image alone and pairs, in sizes other than the traced ones."""
    for batch in (1, 5):
        for text_length in text_length_buckets(config.max_text_tokens):
            ids, text_mask, tokens, image_mask = _pair(config, batch, text_length, 1)
            yield ids, text_mask, torch.zeros_like(tokens), torch.zeros_like(image_mask)
            yield _pair(config, batch, text_length, config.image_token_count)
        yield _pair(config, batch, 1, config.image_token_count)


def _pixels(config: JointConfig, batch: int) -> Tensor:
    size = config.image_size
    generator = torch.Generator().manual_seed(batch)
    return torch.randint(0, 256, (batch, size, size, 3), dtype=torch.uint8, generator=generator)


def _pair(
    config: JointConfig, batch: int, text_length: int, image_length: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns random inputs; each text after the first is padded from its middle on."""
    generator = torch.Generator().manual_seed(batch * 1000 + text_length)
    ids = torch.randint(
        0, config.vocabulary_size, (batch, text_length), dtype=torch.int64, generator=generator
    )
    text_mask = torch.ones_like(ids)
    text_mask[1:, max(1, text_length // 2) :] = 0
    tokens = torch.randn(batch, image_length, config.token_width, generator=generator).half()
    return ids, text_mask, tokens, torch.ones(batch, image_length, dtype=torch.int64)


def _install(
    checkpoint: Checkpoint,
    precision: Precision,
    repository: Path,
    backbone_file: Path,
    encoder_file: Path,
) -> Manifest:
    files = {IMAGE_BACKBONE: backbone_file, JOINT_ENCODER: encoder_file}
    manifest = export_manifest(
        checkpoint.files, precision, {name: _sha256(path) for name, path in files.items()}
    )
    manifest_path = repository / JOINT_ENCODER / MANIFEST_NAME
    manifest_path.unlink(missing_ok=True)
    for name, config_text in joint_model_configs(manifest).items():
        model_file(repository, name).parent.mkdir(parents=True, exist_ok=True)
        files[name].replace(model_file(repository, name))
        config_file(repository, name).write_text(config_text, encoding="utf-8")
    tokenizer_file(repository).write_text(checkpoint.tokenizer.to_str(), encoding="utf-8")
    manifest.write(manifest_path)
    return manifest


def _sha256(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
