"""An image backbone that learns a corpus before the rounds, and what cannot be taught so."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean as mean

import pytest
import torch
from torch import nn

from tandem.lab.training.recipes.recipe import JointRecipe
from tandem.model_io.repository.precision import native_precision
from tandem.modeling.checkpoint import load_checkpoint, save_checkpoint
from tandem.modeling.joint_model import JointModel
from tandem.modeling.separate_checkpoint import combine
from tandem.modeling.separate_encoders import encoders_in
from tests.support.modeling.separate_checkpoint import save_be_and_ce
from tests.support.modeling.tiny_checkpoint import tiny_model, tiny_tokenizer
from tests.support.training.emoji_tuning import RECIPE, records, save_untrained, train_further
from tests.support.training.small_runs import Stopped, stop_at

TUNED = replace(
    RECIPE, backbone_step_count=6, backbone_batch_size=8, round_count=4, dev_every_round_count=4
)


@pytest.fixture(name="init", scope="module")
def _init(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("init")
    save_untrained(folder)
    return folder


def tuned(init: Path, folder: Path, recipe: JointRecipe, **options: object) -> None:
    train_further(recipe, init, records("train", 60), records("val", 30), folder, **options)


def moved(before: nn.Module, after: nn.Module) -> float:
    """Returns how many of the tensors differ, as a share of them all."""
    old, new = before.state_dict(), after.state_dict()
    return mean(not torch.equal(old[name], new[name]) for name in old)


def test_the_backbone_learns_and_is_then_frozen(tmp_path: Path, init: Path) -> None:
    """In its own steps, norms' statistics too; not one bit of it moves in the rounds.

    Its biases before a norm have no gradient to speak of, so that not all tensors need move.
    """
    tuned(init, tmp_path / "short", TUNED)
    tuned(init, tmp_path / "long", replace(TUNED, round_count=12, dev_every_round_count=12))

    begun, short, long = (
        load_checkpoint(each).model for each in (init, tmp_path / "short", tmp_path / "long")
    )
    assert moved(begun.image_backbone, short.image_backbone) > 0.9
    assert moved(short.image_backbone, long.image_backbone) == 0
    assert moved(short.joint_encoder, long.joint_encoder) > 0.9


# In the encoder's stage test_run_state stops a run.
def test_a_resumed_run_reaches_the_same_weights(tmp_path: Path, init: Path) -> None:
    recipe = replace(
        TUNED, precision=native_precision().value, backbone_step_count=12, round_count=12
    )

    tuned(init, tmp_path / "whole", recipe)
    stop = stop_at("backbone", 10)
    with pytest.raises(Stopped):
        tuned(init, tmp_path / "stopped", recipe, progress=stop, state_every_step_count=4)
    stages: list[tuple[str, int]] = []
    tuned(
        *(init, tmp_path / "stopped", recipe),
        resume=True,
        progress=lambda stage, step, *_: stages.append((stage, step)),
    )

    whole, stopped = (load_checkpoint(tmp_path / name) for name in ("whole", "stopped"))
    assert stopped.weights_sha256 == whole.weights_sha256
    # The run that began there names where it began, and that step's weights.
    assert ("backbone", 0) not in stages
    assert ("encoder", 0) in stages


def test_of_separate_encoders_the_be_teaches_it(tmp_path: Path) -> None:
    """The CE reads the new image tokens, and learns from its own steps alone."""
    texts = tuple(c.text for each in records("train", 60) for c in each.captions)
    be_folder, ce_folder = save_be_and_ce(tmp_path, texts=texts)
    combine(be_folder, ce_folder, tmp_path / "both")

    stop = stop_at("encoder", 0)  # before its first round: the stage before moves what has moved
    with pytest.raises(Stopped):
        tuned(tmp_path / "both", tmp_path / "out", TUNED, progress=stop, state_every_step_count=6)

    state = torch.load(tmp_path / "out" / "run_state.pt", weights_only=True)["state"]["modules"]
    after = load_checkpoint(tmp_path / "both").model
    after.joint_encoder.load_state_dict(state["encoder"])
    be, ce = encoders_in(after.joint_encoder)
    assert moved(load_checkpoint(be_folder).model.joint_encoder, be) > 0.8
    assert moved(load_checkpoint(ce_folder).model.joint_encoder, ce) == 0


def test_a_backbone_that_cannot_learn_is_refused(tmp_path: Path) -> None:
    """Patches have none, and a packaged one stays as it was published; nothing is written."""
    tokenizer = tiny_tokenizer()
    config = tiny_model(vocabulary_size=tokenizer.get_vocab_size()).config
    model = JointModel(replace(config, image_source="patches"))
    save_checkpoint(tmp_path / "init", model, tokenizer, {})

    with pytest.raises(ValueError, match="image tokens of patches come from nothing that learns"):
        tuned(tmp_path / "init", tmp_path / "out", TUNED)

    assert not (tmp_path / "out").exists()


def test_a_cross_encoder_alone_is_refused(tmp_path: Path, init: Path) -> None:
    """The steps are the BE's, which it does not train."""
    begun = load_checkpoint(init)
    steps = {"be_steps_per_round": 0, "ce_steps_per_round": 2}
    save_checkpoint(tmp_path / "ce", begun.model, begun.tokenizer, {"recipe": steps})

    with pytest.raises(ValueError, match="this run only trains the CE"):
        tuned(tmp_path / "ce", tmp_path / "out", TUNED)
