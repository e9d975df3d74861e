"""A network of the zoo learns, resumes, and keeps its best checkpoint."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch

from tandem.lab.training.processes import Processes
from tandem.lab.training.recipes.named_recipes import zoo
from tandem.lab.training.recipes.recipe import Recipe, ZooRecipe, on_corpus
from tandem.lab.training.runs.loss_curve import read_curve
from tandem.lab.training.sources.record_source import RecordSource
from tandem.lab.training.starting_model import in_its_shape
from tandem.lab.training.train import RunEnd, train
from tandem.lab.training.zoo_training import starting_zoo_model
from tandem.lab.zoo.checkpoint import load_zoo_checkpoint
from tandem.modeling.checkpoint import load_checkpoint, save_checkpoint
from tandem.modeling.image_sources.region_tokens import write_regions
from tandem.modeling.trained_pictures import TrainedPictures
from tests.support.modeling.published_folders import published_bert
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint, tiny_tokenizer
from tests.support.training.emoji_tuning import records
from tests.support.training.small_runs import Stopped, stop_at

TRAIN = records("train", 120)


def zoo_recipe(**changes: object) -> ZooRecipe:
    recipe = replace(
        zoo(1),
        image_source="patches",
        image_size=32,
        begins_with_backbone=False,
        width=16,
        head_count=2,
        layer_count=1,
        embedding_width=16,
        round_count=10,
        all_hinges_round_count=5,
        be_batch_size=8,
        dev_every_round_count=5,
        held_out_family_count=8,
    )
    return replace(on_corpus(recipe, "emoji"), **changes)  # type: ignore[arg-type]


def train_zoo_model(recipe: Recipe, folder: Path, **options: object) -> RunEnd:
    """Trains on the first emoji, without progress unless it is given."""
    options.setdefault("progress", lambda *_: None)
    return train(recipe, RecordSource(TRAIN, ()), folder, **options)  # type: ignore[arg-type]


def test_a_stopped_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    """And with the curve of a whole one; the checkpoint names its recipe and recalls.

    VSRN draws dropouts, and has statistics of batches, which a state has to keep too.
    """
    recipe = zoo_recipe(zoo_model="vsrn")

    done = train_zoo_model(recipe, tmp_path / "whole")
    with pytest.raises(Stopped):
        train_zoo_model(
            recipe, tmp_path / "cut", progress=stop_at("zoo", 10), state_every_step_count=7
        )
    train_zoo_model(recipe, tmp_path / "cut", resume=True)

    whole, cut = (load_zoo_checkpoint(tmp_path / each) for each in ("whole", "cut"))
    theirs = cut.model.state_dict()
    assert all(torch.equal(each, theirs[key]) for key, each in whole.model.state_dict().items())
    assert whole.training["recipe"]["zoo_model"] == "vsrn"
    assert whole.training["dev_recall_percent"]["be_mean_recall"] == done.best.be_mean_recall
    lines = read_curve(tmp_path / "cut")
    assert [line["round"] for line in lines] == list(range(1, 11))


def test_a_published_text_encoder_can_be_frozen(tmp_path: Path) -> None:
    """Its layers begin as published and stay so; the network over them learns."""
    published_bert(tmp_path / "published", layer_count=1)
    recipe = zoo_recipe(
        zoo_model="saem",
        zoo_text_reader="transformer",
        has_frozen_text=True,
        pretrained=str(tmp_path / "published"),
        round_count=2,
    )
    begun, _ = starting_zoo_model(in_its_shape(recipe, tmp_path), tmp_path, tiny_tokenizer)

    train_zoo_model(recipe, tmp_path / "frozen")
    train_zoo_model(replace(recipe, has_frozen_text=False), tmp_path / "tuned")

    first = begun.network.state_dict()
    frozen, tuned = (
        load_zoo_checkpoint(tmp_path / name).model.network.state_dict()
        for name in ("frozen", "tuned")
    )
    trunk = [name for name in first if ".trunk." in name]
    assert len(trunk) > 10
    assert all(torch.equal(frozen[name], first[name].half().float()) for name in trunk)
    assert any(not torch.equal(tuned[name], first[name].half().float()) for name in trunk)
    moved = [name for name in first if not torch.equal(frozen[name], first[name].half().float())]
    assert any(name.startswith("windows") for name in moved)


def test_it_learns_from_a_detectors_regions(tmp_path: Path) -> None:
    """Features and boxes come from the file, and its digest is in the recipe."""
    generator = np.random.default_rng(1)
    made = {each.record_id: generator.random((3, 2_054)).astype(np.float16) for each in TRAIN}
    write_regions(tmp_path / "regions.safetensors", made, region_count=4)
    recipe = zoo_recipe(zoo_model="camera", image_source="regions", round_count=2)
    source = RecordSource(TRAIN, (), regions=tmp_path / "regions.safetensors")

    done = train(recipe, source, tmp_path / "camera", lambda *_: None)

    checkpoint = load_zoo_checkpoint(tmp_path / "camera")
    assert checkpoint.model.config.image_source == "regions"
    assert checkpoint.training["recipe"]["regions_sha256"]
    assert done.best.be_mean_recall is not None
    assert done.best.ce_mean_recall is not None


def test_the_backbones_pictures_stay_known(tmp_path: Path) -> None:
    """The backbone that a network is trained over has learned from pictures too."""
    seen = TrainedPictures.of([sha256(b"a picture that the backbone saw").digest()])
    save_tiny_checkpoint(tmp_path / "init")
    begun = load_checkpoint(tmp_path / "init")
    save_checkpoint(tmp_path / "init", begun.model, begun.tokenizer, {}, trained_pictures=seen)
    recipe = zoo_recipe(image_source="grid", begins_with_backbone=True, round_count=1)

    train_zoo_model(recipe, tmp_path / "zoo", init=tmp_path / "init")
    with pytest.raises(ValueError, match="holds the checkpoint that the run begins with"):
        train_zoo_model(recipe, tmp_path / "init", init=tmp_path / "init")

    known = load_zoo_checkpoint(tmp_path / "zoo").trained_pictures
    assert known is not None
    assert seen.digests[0] in known.digests
    assert len(known) > 1


def test_one_process_trains(tmp_path: Path) -> None:
    """Several would draw the same batches."""
    with pytest.raises(ValueError, match="trains in one process, and 2 were started"):
        train_zoo_model(zoo_recipe(), tmp_path, processes=Processes(count=2))


def test_the_loss_falls(tmp_path: Path) -> None:
    """By all hinges, over forty steps of eight pairs."""
    recipe = zoo_recipe(round_count=40, all_hinges_round_count=40, dev_every_round_count=40)

    train_zoo_model(recipe, tmp_path)

    losses = [line["be_loss"] for line in read_curve(tmp_path)]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
