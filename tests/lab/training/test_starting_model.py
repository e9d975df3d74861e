"""What a run begins from: nothing, or a published encoder with its tokenizer."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.lab.training.recipes.named_recipes import tiny
from tandem.lab.training.recipes.recipe import JointRecipe
from tandem.lab.training.sources.scene_source import SceneSource
from tandem.lab.training.starting_model import in_its_shape, starting_model
from tandem.lab.training.train import train
from tandem.modeling.checkpoint import load_checkpoint
from tandem.modeling.config import ImageSource
from tandem.modeling.published.checkpoint import PublishedCheckpoint
from tandem.modeling.published.files import PublishedCheckpointInvalid
from tests.support.modeling.published_folders import published_bert, published_xlm_r
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint, tiny_tokenizer

# On one worker: its tests share what takes long to make.
pytestmark = pytest.mark.xdist_group("train")


def from_published(folder: Path, image_source: ImageSource = "patches") -> JointRecipe:
    """Returns the tiny recipe from the folder; patches need no steps of their own."""
    return replace(tiny(1), pretrained=str(folder), image_source=image_source)


def test_a_run_from_a_published_encoder_gives_a_checkpoint_of_ours(tmp_path: Path) -> None:
    """Its shape, its tokenizer, weights that have moved, and what it began from in its folder."""
    published_xlm_r(tmp_path / "published")

    train(from_published(tmp_path / "published"), SceneSource(), tmp_path / "ours", lambda *_: None)

    published = PublishedCheckpoint.open(str(tmp_path / "published"))
    checkpoint = load_checkpoint(tmp_path / "ours")
    assert checkpoint.model.config == replace(published.config, image_source="patches")
    assert checkpoint.tokenizer.to_str() == published.tokenizer.to_str()
    begun, _ = starting_model(from_published(tmp_path / "published"), tmp_path, tiny_tokenizer)
    moved = {
        name: (weight - begun.state_dict()[name]).abs().max().item()
        for name, weight in checkpoint.model.state_dict().items()
    }
    # More than its rounding to float16, less than another draw would differ by.
    assert 1e-3 < moved["joint_encoder.layers.0.query_key_value.weight"] < 0.05
    recipe = checkpoint.training["recipe"]
    assert recipe["pretrained"] == str(tmp_path / "published")
    assert recipe["pretrained_weights_sha256"] == published.weights_sha256()
    shape = ("width", "layer_count", "head_count", "vocabulary_size")
    assert [recipe[name] for name in shape] == [32, 2, 4, 20]


def test_a_trained_backbone_is_used_unchanged(tmp_path: Path) -> None:
    save_tiny_checkpoint(tmp_path / "init")
    published_bert(tmp_path / "published")
    recipe = replace(
        from_published(tmp_path / "published", "grid"),
        begins_with_backbone=True,
        backbone_step_count=0,
    )
    stages: list[str] = []

    train(
        recipe,
        SceneSource(),
        tmp_path / "ours",
        lambda stage, *_: stages.append(stage),
        init=tmp_path / "init",
    )

    init, ours = load_checkpoint(tmp_path / "init"), load_checkpoint(tmp_path / "ours")
    assert "backbone" not in stages
    config = ours.model.config
    assert (config.width, config.token_width, config.image_source) == (32, 16, "grid")
    kept = ours.model.image_backbone.state_dict()
    begun = init.model.image_backbone.state_dict()
    assert all(torch.equal(kept[name], begun[name]) for name in begun)
    assert ours.training["recipe"]["init_weights_sha256"] == init.weights_sha256


@pytest.mark.parametrize("also", [{"backbone_step_count": 2}, {"begins_trained": True}])
def test_a_trained_backbone_is_not_trained_or_loaded_twice(also: dict[str, Any]) -> None:
    """The recipe says so before anything is computed."""
    without_steps = replace(tiny(1), backbone_step_count=0)
    with pytest.raises(ValueError, match="takes a trained image backbone as it is"):
        replace(without_steps, begins_with_backbone=True, **also)


def test_half_the_layers_are_used(tmp_path: Path) -> None:
    """Layers 0 and 2 of three."""
    published = published_bert(tmp_path)
    recipe = replace(from_published(tmp_path), has_half_the_layers=True)

    model, _ = starting_model(recipe, tmp_path, tiny_tokenizer)

    layers = model.joint_encoder.layers
    assert len(layers) == 2  # type: ignore[arg-type]
    for own, number in zip(layers, (0, 2), strict=True):  # type: ignore[arg-type]
        theirs = published.encoder.layer[number].output.dense.weight
        assert torch.equal(own.feed_forward[2].weight, theirs)  # type: ignore[arg-type]


def test_the_image_source_can_be_chosen_by_name(tmp_path: Path) -> None:
    """`tandem train --image-source`; regions are refused, since scenes have none."""
    published_bert(tmp_path / "published")
    arguments = ["train", "tiny", "--from", str(tmp_path / "published")]
    arguments += ["--overwrite", "--folder", str(tmp_path), "--image-source"]

    patches = CliRunner().invoke(app, [*arguments, "patches"])
    regions = CliRunner().invoke(app, [*arguments, "regions"])
    unknown = CliRunner().invoke(app, [*arguments, "sound"])

    assert patches.exit_code == 0, patches.output
    assert load_checkpoint(tmp_path / "tiny").model.config.image_source == "patches"
    assert "regions, a detector's, and scenes have none" in str(regions.exception)
    assert isinstance(unknown.exception, PublishedCheckpointInvalid)


def test_other_weights_are_another_recipe(tmp_path: Path) -> None:
    """The folder is the same, what lies in it is not: a run does not resume from it."""
    digests = set()
    for type_count in (1, 2):
        published_bert(tmp_path, layer_count=2, type_count=type_count)
        recipe = in_its_shape(from_published(tmp_path), tmp_path)
        digests.add(recipe.pretrained_weights_sha256)

    assert len(digests) == 2
