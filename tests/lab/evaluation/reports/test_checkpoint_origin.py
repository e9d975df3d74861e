"""What a report says that a checkpoint began with."""

from dataclasses import replace
from typing import Any

import pytest
from torch import nn

from tandem.lab.evaluation.reports.checkpoint_origin import origin_about
from tandem.lab.training.recipes.named_recipes import (
    compact,
    default,
    finetune,
    joint_matcher,
    photographs,
    tiny,
)
from tandem.lab.training.recipes.recipe import Recipe
from tandem.modeling.config import JointConfig

INIT: dict[str, Any] = {"init_weights_sha256": "1" * 64}
BERT: dict[str, Any] = {"pretrained": "./bert", "pretrained_weights_sha256": "2" * 64}
VIT: dict[str, Any] = {
    "image_source": "vision_tower",
    "vision": "./vit",
    "vision_weights_sha256": "3" * 64,
}


@pytest.mark.parametrize(
    ("recipe", "began_with"),
    [
        (default(), "random weights"),
        (replace(tiny(), image_source="patches", **BERT), f"./bert, weights {'2' * 12}"),
        (
            replace(photographs(), **BERT),
            f"./bert, weights {'2' * 12} and EfficientNet-Lite0 as published",
        ),
        (
            replace(tiny(), **BERT, **VIT),
            f"./bert, weights {'2' * 12} and ./vit, weights {'3' * 12}",
        ),
        (replace(tiny(), **VIT), f"random weights and ./vit, weights {'3' * 12}"),
        (replace(finetune("emoji", 1), **INIT), f"a checkpoint, weights {'1' * 12}"),
        (
            replace(compact(), **INIT),
            f"random weights and a checkpoint's image backbone, weights {'1' * 12}",
        ),
        (
            replace(joint_matcher(), **INIT, pretrained=""),
            f"a checkpoint's two towers, weights {'1' * 12}",
        ),
    ],
)
def test_every_pretrained_part_is_named(recipe: Recipe, began_with: str) -> None:
    config = JointConfig(vocabulary_size=30, width=16, layer_count=1, head_count=2)

    about = origin_about(nn.Linear(2, 2), config, {"recipe": recipe.to_dict()})

    assert about["began with"] == began_with
