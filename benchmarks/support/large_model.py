"""A model of BERT-base's size with random weights, exported: 12 layers of 768, 50 image tokens.

What it answers means nothing, and what it computes takes as long as if it did. Its image tokens
are the first 50 places of an 8 x 8 grid: 50 is the paper's number of regions and no square.

Shapes: B pictures, R image tokens, D token width.
"""

from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from tandem.model_io.repository.config_pbtxt import model_configs
from tandem.model_io.repository.manifest import (
    IMAGE_BACKBONE,
    JOINT_ENCODER,
    TOKENIZER_NAME,
    Manifest,
    config_file,
    manifest_file,
    model_file,
)
from tandem.model_io.repository.precision import Precision
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.config import JointConfig
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.export import modules_of
from tandem.modeling.export.export_manifest import export_manifest
from tandem.modeling.export.exported import write_exported
from tandem.modeling.export.lowered import lowered
from tandem.modeling.joint_model import JointModel

IMAGE_TOKEN_COUNT = 50
WIDTH = 768
LAYER_COUNT = 12
_GRID_PIXELS = 128
_NAMES = (IMAGE_BACKBONE, JOINT_ENCODER)


def export_large(
    repository: Path,
    precision: Precision,
    seed: int = 0,
    width: int = WIDTH,
    layer_count: int = LAYER_COUNT,
) -> Manifest:
    """Writes the model's repository, with the default model's tokenizer, and returns its manifest.

    Other than export_model it compares nothing: there is no checkpoint to be true to.
    """
    tokenizer = Tokenizer.from_file(str(default_checkpoint() / "tokenizer.json"))
    config = JointConfig(
        vocabulary_size=tokenizer.get_vocab_size(),
        width=width,
        layer_count=layer_count,
        head_count=width // 64,
        image_size=_GRID_PIXELS,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = JointModel(config).eval()
    weights_name = f"random {seed}"
    manifest = replace(
        export_manifest(
            CheckpointFiles(config, tokenizer, weights_name),
            precision,
            dict.fromkeys(_NAMES, weights_name),
        ),
        image_token_count=IMAGE_TOKEN_COUNT,
    )
    model = lowered(model, precision)
    model.image_backbone = _First(model.image_backbone)  # type: ignore[assignment]
    for name, config_text in model_configs(manifest).items():
        model_file(repository, name).parent.mkdir(parents=True, exist_ok=True)
        config_file(repository, name).write_text(config_text, encoding="utf-8")
    files = {name: model_file(repository, name) for name in _NAMES}
    write_exported(modules_of(model), manifest, files)
    (repository / TOKENIZER_NAME).write_text(tokenizer.to_str(), encoding="utf-8")
    manifest.write(manifest_file(repository))
    return manifest


class _First(nn.Module):
    """A backbone's first image tokens."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, pixels: Tensor) -> Tensor:
        """uint8 [B, H, W, 3] -> float16 [B, 50, D]."""
        tokens_BRD: Tensor = self.backbone(pixels)
        return tokens_BRD[:, :IMAGE_TOKEN_COUNT]
