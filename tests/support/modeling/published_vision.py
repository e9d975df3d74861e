"""Folders as others publish vision networks: made here with transformers, tiny and random."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

_TRANSFORMER = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 64,
    "patch_size": 16,
}
SHAPES = {
    "vit": (17, 24),
    "deit": (18, 24),
    "dinov2": (17, 24),
    "clip": (17, 24),
    "siglip": (16, 24),
    "convnext": (4, 24),
    "resnet": (4, 24),
}
"""Image tokens of 64 pixels and their width, by family; the first of most is [CLS]."""


def published_vision(folder: Path, family: str) -> Any:
    """Writes a network, a classifier's or a whole CLIP's, and returns its image side."""
    import transformers

    t: Any = transformers

    with torch.random.fork_rng():
        torch.manual_seed(5)
        if family in ("clip", "siglip"):
            kind = {"clip": t.CLIPModel, "siglip": t.SiglipModel}[family]
            text = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
            text |= {"vocab_size": 50, "intermediate_size": 16}
            model = kind(kind.config_class(text_config=text, vision_config=_TRANSFORMER)).eval()
            side = model.vision_model
        elif family in ("convnext", "resnet"):
            sizes = {"hidden_sizes": [8, 12, 16, 24], "depths": [1, 1, 1, 1], "embedding_size": 8}
            kind = {
                "convnext": t.ConvNextForImageClassification,
                "resnet": t.ResNetForImageClassification,
            }[family]
            model = kind(kind.config_class(**sizes, num_labels=3)).eval()
            side = getattr(model, family)
        else:
            kind = {
                "vit": t.ViTForImageClassification,
                "deit": t.DeiTForImageClassification,
                "dinov2": t.Dinov2ForImageClassification,
            }[family]
            model = kind(kind.config_class(**_TRANSFORMER, num_labels=3)).eval()
            side = getattr(model, family)
    model.save_pretrained(folder)
    processor = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.25, 0.3]}
    processor |= {"size": {"height": 64, "width": 64}}  # type: ignore[dict-item]
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return side
