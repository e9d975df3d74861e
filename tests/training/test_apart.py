"""The recipe that takes a trained model's lower layers apart, from a small checkpoint."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.modeling.checkpoint import load_checkpoint
from tandem.modeling.joint_model import JointModel
from tandem.training.recipes import Recipe, apart, tiny
from tandem.training.train import train

# On one worker: its tests share what takes long to make.
pytestmark = pytest.mark.xdist_group("train")


@pytest.fixture(name="init", scope="module")
def _init(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small model that was trained on scenes."""
    folder = tmp_path_factory.mktemp("init")
    train(replace(tiny(1), layer_count=2, round_count=2), folder, lambda *_: None)
    return folder


def small(rounds: int = 2) -> Recipe:
    """Returns the recipe with little to do."""
    return replace(
        apart(1),
        apart_layer_count=1,
        round_count=rounds,
        softmax_round_count=1,
        pool_family_count=16,
        be_batch_size=8,
        ce_family_count=2,
        dev_family_count=4,
        dev_every_round_count=2,
    )


def test_it_begins_with_the_checkpoints_weights_and_keeps_its_backbone(
    init: Path, tmp_path: Path
) -> None:
    """No stage of the backbone; shape, tokenizer and origin are the checkpoint's."""
    stages: list[str] = []

    train(small(), tmp_path, lambda stage, *_: stages.append(stage), init=init)

    begun, ended = load_checkpoint(init), load_checkpoint(tmp_path)
    assert "backbone" not in stages
    assert ended.model.config == replace(begun.model.config, apart_layer_count=1)
    assert ended.tokenizer.to_str() == begun.tokenizer.to_str()
    recipe = ended.training["recipe"]
    assert recipe["init_weights_sha256"] == begun.weights_sha256
    assert (recipe["width"], recipe["layer_count"], recipe["apart_layer_count"]) == (32, 2, 1)
    moved = _moved(begun.model, ended.model)
    assert max(moved[name] for name in moved if name.startswith("image_backbone.")) == 0
    # More than its rounding to float16, less than another draw would differ by.
    assert 1e-5 < moved["joint_encoder.layers.0.query_key_value.weight"] < 0.01


def test_how_many_layers_and_how_long_can_be_said(init: Path, tmp_path: Path) -> None:
    """`tandem train apart --apart-layers --rounds --init`; all else is the recipe's."""
    result = CliRunner().invoke(
        app,
        [
            *("train", "apart", "--apart-layers", "2", "--rounds", "1"),
            *("--init", str(init), "--folder", str(tmp_path)),
        ],
    )

    # Refused by the small model's shape, so that nothing has to be trained to see it arrive.
    assert "apart_layer_count is 2" in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["apart", "--pretrained", "x"], "--pretrained would be ignored"),
        (
            ["apart", "--corpus", "scenes", "--count", "4"],
            "--count would be ignored: recipe apart says",
        ),
        (["default", "--apart-layers", "1"], "--apart-layers would be ignored"),
        (
            ["finetune", "--corpus", "emoji", "--apart-layers", "1"],
            "--apart-layers would be ignore",
        ),
        (["apart", "--init", "/nowhere"], "/nowhere is no checkpoint"),
    ],
)
def test_what_would_not_be_done_is_refused(tmp_path: Path, arguments: list[str], why: str) -> None:
    """By name, and nothing is written."""
    result = CliRunner().invoke(app, ["train", *arguments, "--folder", str(tmp_path)])

    assert why in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_says_how_it_was_made(init: Path, tmp_path: Path) -> None:
    """Its config.json alone tells serving that layers are apart."""
    train(small(), tmp_path, lambda *_: None, init=init)

    config = json.loads((tmp_path / "config.json").read_text())
    assert config["apart_layer_count"] == 1


def _moved(begun: JointModel, ended: JointModel) -> dict[str, float]:
    after = ended.state_dict()
    return {
        name: (weight.float() - after[name].float()).abs().max().item()
        for name, weight in begun.state_dict().items()
        if weight.dtype is not torch.int64
    }
